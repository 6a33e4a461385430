# Mixed models of one table on all of its splits.
#
#   Rscript rivals.R FOLDER KIND SLOPE NUMBERS CATEGORIES SMOOTH
#
# FOLDER has table.csv (g, y, inputs) and roles.csv (one column per split: 1, 2 learn; 3 test). Lists are separated
# by commas; "-" is an empty one. Writes answers.csv: split, method, row, mean, std (empty for classes), cpu.
suppressMessages({library(lme4); library(splines); library(mgcv); library(MASS)})

given <- commandArgs(trailingOnly = TRUE)
parts <- function(text) if (text == "-") character(0) else strsplit(text, ",")[[1]]
folder <- given[1]; kind <- given[2]; slope <- parts(given[3])
numbers <- parts(given[4]); categories <- parts(given[5]); smooth <- parts(given[6])
table <- read.csv(file.path(folder, "table.csv"), stringsAsFactors = FALSE)
roles <- read.csv(file.path(folder, "roles.csv"))
table$g <- factor(table$g)
for (name in categories) table[[name]] <- factor(table[[name]])
for (name in numbers) table[[name]] <- as.numeric(scale(table[[name]]))  # predictions do not depend on units

# Terms that vary within the training rows: the others cannot be estimated.
usable <- function(names, rows) Filter(function(name) length(unique(rows[[name]])) > 1, names)
formula_of <- function(terms) as.formula(paste("y ~", paste(c("1", terms), collapse = " + ")))

# Mean and deviation of new observations under a linear mixed model with its variances as estimated:
# best linear unbiased prediction, with the uncertainty of the fixed effects.
blup <- function(fit, train, test, z_of) {
  beta <- fixef(fit); cov_beta <- as.matrix(vcov(fit)); s2 <- sigma(fit)^2
  G <- as.matrix(VarCorr(fit)$g)
  plan <- delete.response(terms(fit, fixed.only = TRUE))
  levels <- lapply(Filter(is.factor, model.frame(fit)[setdiff(names(model.frame(fit)), "g")]), levels)
  design <- function(rows) model.matrix(plan, model.frame(plan, rows, xlev = levels))[, names(beta), drop = FALSE]
  X <- design(train); X_new <- design(test); Z <- z_of(train); Z_new <- z_of(test)
  error <- train$y - X %*% beta
  mean <- drop(X_new %*% beta); var <- numeric(nrow(test))
  for (g in unique(test$g)) {
    new <- which(test$g == g); old <- which(train$g == g)
    K <- Z_new[new, , drop = FALSE] %*% G
    left <- X_new[new, , drop = FALSE]; v <- rowSums(K * Z_new[new, , drop = FALSE])
    if (length(old)) {
      V <- Z[old, , drop = FALSE] %*% G %*% t(Z[old, , drop = FALSE]) + s2 * diag(length(old))
      C <- K %*% t(Z[old, , drop = FALSE]); W <- t(solve(V, t(C)))
      mean[new] <- mean[new] + drop(W %*% error[old])
      left <- left - W %*% X[old, , drop = FALSE]; v <- v - rowSums(W * C)
    }
    var[new] <- v + s2 + rowSums((left %*% cov_beta) * left)
  }
  list(mean = mean, std = sqrt(pmax(var, 1e-12)))
}

lme4_fit <- function(train, test, slope, splines) {
  terms <- usable(c(numbers, categories), train)
  if (splines) for (name in smooth) if (length(unique(train[[name]])) > 5)
    terms <- c(setdiff(terms, name), paste0("ns(", name, ", 4)"))
  formula <- formula_of(c(terms, if (length(slope)) paste0("(1 + ", slope, " | g)") else "(1 | g)"))
  z_of <- function(rows) if (length(slope)) cbind(1, rows[[slope]]) else matrix(1, nrow(rows), 1)
  if (kind == "reg") return(blup(lmer(formula, train), train, test, z_of))
  if (kind == "bin") {
    fit <- glmer(formula, train, family = binomial, nAGQ = 0)
    return(list(mean = predict(fit, test, type = "response", allow.new.levels = TRUE)))
  }
  fit <- glmer.nb(formula_of(c(terms, "(1 | g)")), data = train, nAGQ = 0)
  mean <- predict(fit, test, type = "response", allow.new.levels = TRUE)
  list(mean = mean, std = sqrt(mean + mean^2 / getME(fit, "glmer.nb.theta")))
}

mgcv_fit <- function(train, test, slope, factor_smooth) {
  terms <- usable(c(numbers, categories), train)
  for (name in smooth) {
    n_values <- length(unique(train[[name]]))
    if (n_values > 3) terms <- c(setdiff(terms, name), sprintf("s(%s, k = %d)", name, min(10, n_values)))
  }
  terms <- c(terms, "s(g, bs = 're')")
  if (length(slope)) {
    if (factor_smooth) terms <- c(terms, sprintf("s(%s, g, bs = 'fs', k = 5)", slope))
    else terms <- c(terms, sprintf("s(g, %s, bs = 're')", slope))
  }
  family <- list(reg = gaussian(), count = nb(), bin = binomial())[[kind]]
  fit <- bam(formula_of(terms), data = train, family = family, method = "fREML", drop.unused.levels = FALSE)
  found <- predict(fit, test, se.fit = TRUE)
  eta <- as.numeric(found$fit); v <- as.numeric(found$se.fit)^2
  if (kind == "reg") return(list(mean = eta, std = sqrt(v + fit$sig2)))
  if (kind == "bin") return(list(mean = plogis(eta / sqrt(1 + pi * v / 8))))
  theta <- fit$family$getTheta(TRUE); mean <- exp(eta + v / 2)
  list(mean = mean, std = sqrt(mean + mean^2 * (exp(v) * (1 + 1 / theta) - 1)))
}

# With few rows slopes of groups cannot be estimated: then intercepts alone.
with_or_without_slope <- function(fit, train, test, option)
  tryCatch(fit(train, test, usable(slope, train), option), error = function(e) fit(train, test, character(0), option))
methods <- list(
  lme4 = function(train, test) with_or_without_slope(lme4_fit, train, test, FALSE),
  mgcv_re = function(train, test) with_or_without_slope(mgcv_fit, train, test, FALSE)
)
if (kind == "reg") methods$lme4_ns <- function(train, test) with_or_without_slope(lme4_fit, train, test, TRUE)
if (kind == "reg" && length(smooth)) methods$mgcv_fs <- function(train, test) mgcv_fit(train, test, slope, TRUE)
answers <- list()
for (split in names(roles)) {
  train <- table[roles[[split]] %in% c(1, 2), ]; test <- table[roles[[split]] == 3, ]
  for (method in names(methods)) {
    start <- proc.time()
    found <- tryCatch(suppressMessages(suppressWarnings(methods[[method]](train, test))), error = function(e) {
      cat(split, method, conditionMessage(e), "\n"); NULL
    })
    if (is.null(found)) next
    std <- if (is.null(found$std)) rep(NA, nrow(test)) else found$std
    answers[[length(answers) + 1]] <- data.frame(split = split, method = method, row = which(roles[[split]] == 3),
      mean = found$mean, std = std, cpu = sum((proc.time() - start)[1:2]))
  }
}
write.csv(do.call(rbind, answers), file.path(folder, "answers.csv"), row.names = FALSE)
