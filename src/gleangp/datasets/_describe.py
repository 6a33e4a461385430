"""What the sets are, who made them, and what must be known before using them."""

HABERMAN = """Haberman's survival data: 306 patients after surgery for breast cancer, Chicago 1958-1970.

Inputs: age, year of operation (minus 1900), positive axillary nodes. Target: 1 lived five years or longer
(225 patients), 2 died within five years (81). Always answering 1 errs in 26.5 %.

S. J. Haberman (1976), Generalized residuals for log-linear models, Proceedings of the 9th International
Biometrics Conference, 104-122. UCI Machine Learning Repository, set 43. ZS13 Table 1.
"""

IRIS = """Iris: 150 flowers of three species, four measurements in centimetres.

R. A. Fisher (1936), The use of multiple measurements in taxonomic problems, Annals of Eugenics 7, 179-188.
This is the copy of scikit-learn, which follows Fisher's paper; UCI's differs in two rows. ZS13 Table 2.
"""

AUTO_MPG = """Auto MPG: city-cycle fuel consumption of 398 cars of 1970-1982, in miles per gallon.

Inputs: cylinders, displacement, horsepower (missing in six rows), weight, acceleration, model year, origin
(1 USA, 2 Europe, 3 Japan).

J. R. Quinlan (1993), Combining instance-based and model-based learning, ICML. UCI set 9. ZS13 Table 3.
"""

CRESCENT = """Crescents: 400 points of two interlocking crescents; 24 are labelled 1, 13 are labelled -1.

The toy problem of Lawrence, Platt & Jordan (2005), Extensions of the informative vector machine, Figure 5.
From the examples of N. D. Lawrence's GPc (MIT licence). True labels of the others are not known.
"""

KIN40K = """kin40k: forward kinematics of an eight-link robot arm, 10 000 training and 30 000 test rows.

Highly non-linear, little noise. Inputs and target are scaled on the training part. A. Schwaighofer & V. Tresp
(2003), Transductive and inductive methods for approximate Gaussian process regression, NIPS.
"""

PROTEIN = """Protein (CASP): root mean square deviation of 45 730 decoys from nine physicochemical properties.

Input scales differ by seven orders of magnitude: standardise first. P. S. Rana (2013), Physicochemical
properties of protein tertiary structure, UCI set 265.
"""

LANDMINE = """Landmine: nine features of synthetic-aperture radar images of 29 minefields, each a task.

445 to 690 rows a task, 6 % of them mines. The 19 tasks that the papers use (1-10 and 16-24) have 9674 rows.
Always answering "clutter" errs in 6 %: report the area under the curve as well.

Y. Xue, X. Liao, L. Carin & B. Krishnapuram (2007), Multi-task learning for classification with Dirichlet
process priors, JMLR 8, 35-63. ZS13 Table 4.
"""

SCHOOL = """School: exam scores of 15 362 students of 139 London schools in 1985-1987, each school a task.

Inputs: year; share of students with free meals and in verbal-reasoning band 1, gender and denomination of the
school; gender, verbal-reasoning band (unknown in 15 rows) and ethnic group of the student.

Inner London Education Authority; B. Bakker & T. Heskes (2003), Task clustering and gating for Bayesian
multitask learning, JMLR 4, 83-99; A. Argyriou, T. Evgeniou & M. Pontil (2008), Convex multi-task feature
learning, Machine Learning 73, 243-272. ZY09 Table 2.
"""

SARCOS = """SARCOS: inverse dynamics of an anthropomorphic robot arm, 4449 rows, the published test file.

Inputs: seven positions, velocities, accelerations. Targets: seven torques. This file is a tenth of the
published training file; do not test on it what was trained on the other. Rows are in order of time.

S. Vijayakumar, A. D'Souza & S. Schaal (2005), Incremental online learning in high dimensions, Neural
Computation 17, 2602-2634. ZY09 Table 1.
"""

SLUMP = """Concrete slump: 103 mixtures of seven ingredients (kg per cubic metre).

Targets: slump (cm; zero in 11 rows), flow (cm), compressive strength after 28 days (MPa).

I-C. Yeh (2007), Modeling slump flow of concrete using second-order regressions and artificial neural
networks, Cement and Concrete Composites 29, 474-480. UCI set 182. ZS13 Table 5.
"""

VOWELS = """Vowels: eleven vowels spoken six times by each of fifteen speakers, ten log-area ratios.

D. H. Deterding (1989), Speaker normalisation for automatic speech recognition, PhD thesis, Cambridge. UCI set
152. LP04 Figure 5, LPJ05 Figure 8.
"""

USPS = """USPS: handwritten digits of 16 x 16 pixels from US mail, 7291 for training and 2007 for testing.

Y. LeCun et al. (1990), Handwritten digit recognition with a back-propagation network, NIPS; the split is
that of T. Hastie, R. Tibshirani & J. Friedman, The Elements of Statistical Learning. LPJ05 Tables 1-3, UQD07.
"""
