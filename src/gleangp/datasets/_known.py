"""The known files: what they must hold, and where they come from.

`sha256` is that of the file as data folders hold it. `content` is the fingerprint of what loaders read from
it, whatever form it came in: public copies differ in form (MATLAB, ARFF, headers, line ends), so what was
converted is checked by what it says. Addresses of repositories name a commit, so that they do not move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gleangp.datasets import _convert
from gleangp.datasets._tables import Table


@dataclass(frozen=True)
class Address:
    """A file on the network, and how it becomes a table."""

    url: str
    convert: Callable[[Path], Table]

    @property
    def where(self) -> str:
        """For messages."""
        return self.url


@dataclass(frozen=True)
class OpenML:
    """A data set of OpenML, and how its data frame becomes a table."""

    data_id: int
    convert: Callable[..., Table]

    @property
    def where(self) -> str:
        """For messages."""
        return f"OpenML, data set {self.data_id}"


@dataclass(frozen=True)
class DataFile:
    """One file of a data folder."""

    path: str
    sha256: str
    content: str
    checked: tuple[str, ...]  # columns of the fingerprint
    origin: Address | OpenML | None = None


_HUB = "https://raw.githubusercontent.com/"
_FILES = (
    DataFile(
        "haberman/haberman.csv",
        "3e3ff9e861f8872a21950b40ed3f33828824c462cc8d449a898f36a15055c320",
        "da24ad0812fadf8fbcf668a9a424d4563dfe6f4d5100112618840f56aa11c4cc",
        _convert.HABERMAN_COLUMNS,
        OpenML(43, _convert.haberman),
    ),
    DataFile(
        "auto_mpg/auto_mpg.csv",
        "998731a41b824206169dcf84b3a91048bc8d5b833f04b6935686e91664480021",
        "24ae04d4ba62f9f938ad5e0eaa367e5c5c737c33865a1a7709b0f660ad9cf8cd",
        _convert.MPG_COLUMNS,
        OpenML(196, _convert.auto_mpg),
    ),
    DataFile(
        "concrete_slump/concrete_slump.csv",
        "0b1a3c9ae1b78aa174d1d2cfec0bf2ae6c47952a0c075bac4d6b96b878aa324a",
        "f2f819a4f11ec855cda5d547c5df330dfcb831ba3dc0ac53362a5ac751a2506a",
        _convert.SLUMP_COLUMNS,
        Address(f"{_HUB}pi242/GP/b1a9489d79325b3b35d703b5c46acb2bfc1d401e/slump_test.data", _convert.slump),
    ),
    DataFile(
        "crescent/crescent_semisup.csv",
        "36727ccb549ee006ada65052c7c909a88746c27bfed6221714809d5625ae9603",
        "dec614aca1769296b35135f3c03e2a5f036b441f94734ba1ba4686b51492b20b",
        ("x1", "x2", "label"),
        Address(
            f"{_HUB}SheffieldML/GPc/9e412b507aea6bb7e3a3d4be202f94573fc20e06/examples/semisupercrescent.svml",
            _convert.crescent,
        ),
    ),
    DataFile(
        "landmine/landmine.csv.gz",
        "b0dae852b65c467a08b229d09768ee6f44915636b1abead3f5aff3f469a490bb",
        "0888a2ae28ba8b931a90f29f4c5df629f0406e58d0d535272fc9b13d9b55cfc8",
        ("task", "in19", "label", *(f"x{i}" for i in range(9))),
        Address(
            f"{_HUB}daizhongxiang/Federated_Bayesian_Optimization/"
            "9f46a1dfbbcfd5823e026ad9418a4cb881676ae9/LandmineData.mat",
            _convert.landmine,
        ),
    ),
    DataFile(
        "school/school.csv.gz",
        "7afaea25697e4b911fa04d58547bd630729e5e7ca44919b0d7c067d50222c364",
        "1ea65e9a625b3ababd48ccc4420ec25f01b88437aeabb67152077867f0b456f3",
        _convert.SCHOOL_COLUMNS,
        Address(
            f"{_HUB}jiayuzhou/MALSAR/ca3d55b878cc4113f0d9603e8ac46538aeb1ecd9/data/school.mat",
            _convert.school,
        ),
    ),
    DataFile(
        "sarcos/sarcos_test.csv.gz",
        "37770a9c8f7ca62e6d053e7f861f1b157d7305cea5c7c1987a70571e1d189b60",
        "7fc28558035d6b35066c4796835d5e6cbe475f4a055c1015292d2889513ae229",
        _convert.SARCOS_COLUMNS,
        Address(
            f"{_HUB}probml/pmtkdata/1f3ffa3d21a38c8e9e5010dcedb71262b35b446a/sarcos_inv_test.mat",
            _convert.sarcos,
        ),
    ),
    DataFile(
        "vowel/vowel.csv.gz",
        "197d86e6b1cbbd3a1ec61414f9aaf2161b02ff901bb87ecc8eeb9448d5bf553f",
        "021e37a15d4e03cc2956b3f5ecc2c9e72d08cf26fc31e3f56e60e7dd6911fb25",
        ("speaker", "vowel", "word", *(f"x{i}" for i in range(10))),
        OpenML(307, _convert.vowels),
    ),
    DataFile(
        "usps/usps.npz",
        "cb0e46f92aba6b0248237b9ab0922e386313ad1994d77a18be4805be526c1510",
        "1e171e95963dda0a353048322d615e78fb069bb0ae300ed24f03206824164cb7",
        ("y_train", "y_test"),  # grey levels of public copies differ in the last digits
        OpenML(41082, _convert.usps),
    ),
    DataFile("kin40k/kin40k.npz", "a6a9ecb3c842f4342c0e2d0d4d5058592e0662beacc488649be05dee74dd9d2e", "", ()),
    DataFile(
        "protein/protein.csv.gz",
        "82e4ff49e6ab3049490579a1b2acd3363927affe63c84171def85f9c751e03eb",
        "",
        (),
    ),
)
FILES = {file.path: file for file in _FILES}
