"""BLEU, the only user of sacrebleu: a number never leaves here without its metric and signature.

`sacrebleu` and `tokenized_bleu` score a translation, `Sentences` tests the difference of two.

sacrebleu       detokenised hypotheses against the raw references: the number to report
tokenized_bleu  tokenised hypotheses against tokenised references (multi-bleu's definition): what most IWSLT14
                papers print; comparable only where the tokeniser is the same
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

# Written without spaces between words. sacreBLEU's own choice for Japanese and Korean wants a morphological analyser
# that is not installed with it; characters need none, and the signature names them.
_TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}


@dataclass(frozen=True)
class Bleu:
    metric: str
    value: float
    signature: str
    n_sentences: int


def sacrebleu(hypotheses: list[str], references: list[str], lowercase: bool = False, lang: str = "") -> Bleu:
    """Score detokenised text with sacreBLEU's own tokeniser: 13a, or what the target language needs."""
    return _bleu("sacrebleu", BLEU(lowercase=lowercase, tokenize=_tokenizer(lang)), hypotheses, references)


def tokenized_bleu(hypotheses: list[str], references: list[str]) -> Bleu:
    """Score tokens as they stand: four-gram BLEU without smoothing, as multi-bleu.perl."""
    return _bleu("tokenized_bleu", BLEU(tokenize="none", smooth_method="none", force=True), hypotheses, references)


def _tokenizer(lang: str) -> str:
    return _TOKENIZERS.get(lang, "13a")


def _bleu(metric: str, bleu: BLEU, hypotheses: list[str], references: list[str]) -> Bleu:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses against {len(references)} references")
    result = bleu.corpus_score(hypotheses, [references])
    return Bleu(metric, result.score, str(bleu.get_signature()), len(references))


class Sentences:
    """The sentences of one test set: sacreBLEU's counts of each, kept, and its paired bootstrap resampling over them.

    One reference a sentence. A translation is its lines, as many as there are references (ValueError where not).
    """

    def __init__(self, references: list[str], lowercase: bool = False, lang: str = ""):
        self._metric = _Pooled(references=[references], lowercase=lowercase, tokenize=_tokenizer(lang))
        self._count = len(references)

    def bleu(self, translation: tuple[str, ...]) -> float:
        """Give the BLEU that `sacrebleu` gives it."""
        return float(self._metric._aggregate_and_compute(self._metric.counts(self._whole(translation))).score)

    def paired(self, a: Sequence[tuple[str, ...]], b: Sequence[tuple[str, ...]]) -> tuple[float, str]:
        """Give the p of no difference between A and B, each the translations by several seeds, and the signature.

        sacreBLEU's own test (--paired-bs): sentences drawn with replacement 1,000 times, the same for both sides. A
        drawn sentence brings the counts of all its translations on a side: the sentence is what is drawn, and three
        seeds' translations of it do not count as three sentences. The draws are the same each time, unless
        $SACREBLEU_SEED says otherwise.
        """
        systems: Any = [(name, list(zip(*map(self._whole, side), strict=True))) for name, side in (("A", a), ("B", b))]
        signatures, found = PairedTest(systems, {"BLEU": self._metric}, None, "bs")()
        result: Any = found["BLEU"][1]
        return float(result.p_value), str(signatures["BLEU"])

    def _whole(self, translation: tuple[str, ...]) -> tuple[str, ...]:
        if len(translation) != self._count:
            raise ValueError(f"{len(translation)} hypotheses against {self._count} references")
        return translation


class _Pooled(BLEU):
    """BLEU of several translations at once: for a sentence it takes all of them, and adds up their counts."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._known: dict[tuple[str, ...], list[list[int]]] = {}

    def counts(self, translation: tuple[str, ...]) -> list[list[int]]:
        """Give the counts of each sentence of one translation, made once."""
        if translation not in self._known:
            self._known[translation] = super()._extract_corpus_statistics(translation, None)
        return self._known[translation]

    def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> list[list[int]]:
        by_seed = [self.counts(translation) for translation in zip(*hypotheses, strict=True)]
        return [[sum(counts) for counts in zip(*sentence, strict=True)] for sentence in zip(*by_seed, strict=True)]
