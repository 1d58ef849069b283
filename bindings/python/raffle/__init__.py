"""raffle: exact, reproducible token sampling for language models.

>>> import numpy, raffle
>>> raffle.sample(numpy.zeros((3, 8), numpy.float32), seed=1)
array([5, 3, 6], dtype=int32)

For the same logits, parameters, seed and position the token is the same on every CPU, GPU, batch and thread.
"""
import os as _os
from typing import Tuple as _Tuple

from . import _core
from ._api import Candidate, Explanation, explain, pack_mask, prepare, sample
from ._more import More, Report
from ._probs import kept, kept_list, mask, softmax
from ._sampler import Sampler
from ._verify import Verified, verify

__version__ = _core.version()

# Flags of a batch. Without them: masks, temperature, min-p, top-k, top-p in this order, each over the survivors of the
# last, and equal logits live or die together.
TOP_P_JOINT = 1  #: top-p counts the mass of the whole row, not of min-p's and top-k's survivors
FILTERS_FIRST = 2  #: filters look at the row at temperature 1; temperature only shapes the draw
MIN_P_LAST = 4  #: min-p after top-p
TOP_K_EXACT = 8  #: top-k keeps exactly k: of equal logits at the border, the lowest ids
EMPTY_IS_ZERO = 16  #: a row without any token gives 0, not -1
SHAPE_LAST = 32  #: typical_p, epsilon_cutoff, eta_cutoff after top-p, each of what is left; with MIN_P_LAST: Hugging Face's order
REPETITION_OUTPUT = 256  #: repetition_penalty counts tokens of the output only
COUNT_PROMPT = 512  #: frequency_penalty and presence_penalty count the prompt too
BAD_WORDS_OUTPUT = 1024  #: bad_words_token_ids look at the output only

# Row flags.
ROW_NAN = 1  #: had NaN logits; they count as -inf
ROW_INF = 2  #: had +inf logits; only they share the draw
ROW_EMPTY = 4  #: nothing to draw: every token is masked, -inf or NaN
ROW_ARGUMENT = 8  #: on a GPU: a parameter or slot of this row is out of range
ROW_STATE = 16  #: on a GPU: the history of this row's slot is not what was asked for: it had no room for a token, say
ROW_DRAFT = 256  #: verify(): the row that a draft was drawn from is empty, or has NaN or a negative probability, and was not used

NO_TOKEN = -1  #: the token of a row that has none


def cuda_available() -> _Tuple[bool, str]:
    """(True, "") where GPUs can be used, else (False, why not)."""
    return _core.cuda()


def _reseed() -> None:
    _core.reseed(_os.urandom(8))


_reseed()
_os.register_at_fork(after_in_child=_reseed)  # or parent and child would draw alike

__all__ = ["sample", "prepare", "Sampler", "verify", "Verified", "softmax", "mask", "kept", "kept_list", "explain", "pack_mask",
           "cuda_available", "Candidate", "Explanation", "More", "Report", "TOP_P_JOINT", "FILTERS_FIRST", "MIN_P_LAST", "TOP_K_EXACT",
           "EMPTY_IS_ZERO", "SHAPE_LAST", "REPETITION_OUTPUT", "COUNT_PROMPT", "BAD_WORDS_OUTPUT", "ROW_NAN", "ROW_INF", "ROW_EMPTY",
           "ROW_ARGUMENT", "ROW_STATE", "ROW_DRAFT", "NO_TOKEN"]
