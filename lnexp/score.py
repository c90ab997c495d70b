"""BLEU, the only user of sacrebleu: a number never leaves here without its metric and signature.

sacrebleu       detokenised hypotheses against the raw references: the number to report
tokenized_bleu  tokenised hypotheses against tokenised references (multi-bleu's definition): what most IWSLT14
                papers print; comparable only where the tokeniser is the same
"""

from __future__ import annotations

from dataclasses import dataclass

from sacrebleu.metrics import BLEU

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
    tokenizer = _TOKENIZERS.get(lang, "13a")
    return _bleu("sacrebleu", BLEU(lowercase=lowercase, tokenize=tokenizer), hypotheses, references)


def tokenized_bleu(hypotheses: list[str], references: list[str]) -> Bleu:
    """Score tokens as they stand: four-gram BLEU without smoothing, as multi-bleu.perl."""
    return _bleu("tokenized_bleu", BLEU(tokenize="none", smooth_method="none", force=True), hypotheses, references)


def _bleu(metric: str, bleu: BLEU, hypotheses: list[str], references: list[str]) -> Bleu:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses against {len(references)} references")
    result = bleu.corpus_score(hypotheses, [references])
    return Bleu(metric, result.score, str(bleu.get_signature()), len(references))
