"""Batched beam search over anything that makes logits; it knows tokens and scores, nothing of a model.

In: a Stepper and the rules of the search. Out: each sentence's finished hypotheses, best first.
The rules are those of fairseq's SequenceGenerator with its defaults: a step weighs the 2 * beam best continuations of
a sentence; those among the first `beam` of them that end are finished, with the score
log-probability / length^lenpen (the end counted), and the first `beam` that do not end go on; a sentence is done with
`beam` finished hypotheses, or at `max_len` tokens, where all that live must end. No hypothesis is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

_BLOCK = 8
"""Columns that `top` sees as one at first: of 4, 8 and 16 the fastest for 10 of 10,000 columns on a CPU."""
_WASTE = 1 / 8
"""Share of rows that may be of sentences already done before the batch is made smaller."""


class Stepper(Protocol):
    def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Append tokens and give the logits of what follows, [B, W, V].

        tokens: [B, W], W hypotheses of each of B sentences. parents: [B, W], for each of them the hypothesis of the
        step before that it goes on from, as a column of that step's tokens; all 0 at the first step.
        """

    def keep(self, rows: Tensor) -> None:
        """Go on with these sentences alone; rows: [B'], places in the present batch."""


class Hypothesis(NamedTuple):
    tokens: list[int]
    """With the end symbol."""
    score: float
    """Log-probability (natural) / length^lenpen."""


@dataclass(frozen=True)
class Rules:
    beam: int
    max_len: int
    """Tokens before the end symbol, at most."""
    lenpen: float
    eos: int
    """Ends each hypothesis, and stands before its first token."""
    pad: int
    """Never chosen."""


@torch.inference_mode()
def search(
    stepper: Stepper, sentences: int, rules: Rules, device: torch.device, check: Callable[[], None] = lambda: None
) -> list[list[Hypothesis]]:
    """Give the finished hypotheses of each sentence, best first, at most `beam` of them.

    A sentence for which the logits are not numbers has none. `check` is called before each step; what it raises ends
    the search. There is one synchronisation with the device a step.
    """
    beam, eos = rules.beam, rules.eos
    history = _History(sentences, beam, rules.max_len, device)
    rows = torch.arange(sentences, device=device)  # the sentence of each row of the batch
    tokens = torch.full((sentences, 1), eos, device=device)
    parents = torch.zeros_like(tokens)
    scores = torch.zeros((sentences, 1), device=device)
    for step in range(rules.max_len + 1):
        check()
        log_probs = stepper.step(tokens, parents).float().log_softmax(-1)
        log_probs[..., rules.pad] = -math.inf
        if step == 0:
            log_probs[..., eos] = -math.inf
        if step == rules.max_len:
            log_probs[..., :eos] = -math.inf
            log_probs[..., eos + 1 :] = -math.inf
        scores, tokens, parents = _continuations(log_probs, scores, 2 * beam)
        ends = (tokens == eos) & (scores > -math.inf)
        best = slice(beam)
        running = history.finish(
            step, rows, ends[:, best], parents[:, best], scores[:, best] / (step + 1) ** rules.lenpen
        )
        alive = running.tolist()
        if step == rules.max_len or not any(alive):
            break
        # The first `beam` that do not end, in their order. (A beam wider than what there is takes what ends too.)
        columns = torch.arange(ends.size(1), device=device)
        live = (ends * ends.size(1) + columns).topk(min(beam, ends.size(1)), largest=False).indices
        scores = scores.masked_fill(ends, -math.inf)
        scores, tokens, parents = (x.gather(1, live) for x in (scores, tokens, parents))
        if sum(alive) <= (1 - _WASTE) * len(alive):
            chosen = torch.tensor([row for row, lives in enumerate(alive) if lives], device=device)
            rows, scores, tokens, parents = (x[chosen] for x in (rows, scores, tokens, parents))
            stepper.keep(chosen)
        history.append(step, rows, tokens, parents)
    return history.hypotheses(eos)


def _continuations(log_probs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Give scores, tokens and parents of a sentence's best continuations, each [B, count], best first.

    log_probs: [B, W, V], overwritten; scores: [B, W], of what is continued. What is not a number is impossible.
    """
    vocabulary = log_probs.size(-1)
    totals = log_probs.add_(scores.unsqueeze(-1)).flatten(1)
    best, place = top(totals, min(count, totals.size(1) - 1))  # as fairseq: never so many that padding is among them
    return best.nan_to_num(-math.inf, neginf=-math.inf), place % vocabulary, place // vocabulary


def top(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Do torch.topk over the rows of x [N, V]; equal values may come in another order.

    The largest `count` numbers lie in the `count` blocks with the largest maxima. To look for the blocks first is
    twice as fast on a CPU, where topk on long rows costs as much as an eighth of their product with the weights.
    """
    blocks = x.size(1) // _BLOCK
    if blocks <= 4 * count:
        return tuple(x.topk(count))  # type: ignore[return-value]
    end = blocks * _BLOCK
    # Block j has the columns j, j + blocks, j + 2 * blocks and so on: maxima are then taken over whole vectors.
    chosen = x[:, :end].view(-1, _BLOCK, blocks).amax(1).topk(count, sorted=False).indices
    columns = (chosen.unsqueeze(1) + torch.arange(0, end, blocks, device=x.device).unsqueeze(1)).flatten(1)
    if end < x.size(1):
        rest = torch.arange(end, x.size(1), device=x.device)
        columns = torch.cat([columns, rest.expand(x.size(0), -1)], 1)
    values, place = x.gather(1, columns).topk(count)
    return values, columns.gather(1, place)


class _History:
    """What was chosen at each step, and where hypotheses ended; on the device, read once at the end."""

    def __init__(self, sentences: int, beam: int, max_len: int, device: torch.device) -> None:
        self._beam, self._steps = beam, 0
        self._tokens = torch.zeros((max_len, sentences, beam), dtype=torch.long, device=device)
        self._parents = torch.zeros_like(self._tokens)
        # A column more than there are places: what comes too late goes there.
        self._scores = torch.full((sentences, beam + 1), -math.inf, device=device)
        self._ends = torch.zeros((sentences, beam + 1), dtype=torch.long, device=device)
        self._found = torch.zeros(sentences, dtype=torch.long, device=device)

    def append(self, step: int, rows: Tensor, tokens: Tensor, parents: Tensor) -> None:
        """Keep a step's choice; tokens and parents: [B, W] of the sentences `rows`."""
        width = tokens.size(1)
        self._tokens[step, rows, :width] = tokens
        self._parents[step, rows, :width] = parents
        self._steps = step + 1

    def finish(self, step: int, rows: Tensor, ends: Tensor, parents: Tensor, scores: Tensor) -> Tensor:
        """Keep the hypotheses that end here, where their sentence has place; give which sentences go on, [B]."""
        found = self._found[rows].unsqueeze(1)
        place = torch.where(ends, found + ends.cumsum(1) - 1, self._beam).clamp_(max=self._beam)
        place += rows.unsqueeze(1) * (self._beam + 1)
        self._scores.view(-1)[place] = scores
        self._ends.view(-1)[place] = step * self._beam + parents
        found = (found.squeeze(1) + ends.sum(1)).clamp_(max=self._beam)
        self._found[rows] = found
        return found < self._beam

    def hypotheses(self, eos: int) -> list[list[Hypothesis]]:
        """Follow each finished hypothesis from its end to its first token."""
        scores, order = self._scores[:, : self._beam].sort(1, descending=True)
        ends = self._ends.gather(1, order)
        lengths, column = ends // self._beam, ends % self._beam
        written = torch.full((*lengths.shape, self._steps + 1), eos, device=ends.device)
        for step in reversed(range(self._steps)):
            inside = step < lengths
            written[..., step] = torch.where(inside, self._tokens[step].gather(1, column), eos)
            column = torch.where(inside, self._parents[step].gather(1, column), column)
        found = zip(written.tolist(), lengths.tolist(), scores.tolist(), strict=True)
        return [
            [
                Hypothesis(tokens[: length + 1], score)
                for tokens, length, score in zip(*sentence, strict=True)
                if score > -math.inf
            ]
            for sentence in found
        ]
