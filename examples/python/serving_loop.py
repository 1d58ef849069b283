#!/usr/bin/env python3
"""A serving loop in the way of vLLM: requests come and go, one batch of logits per step, raffle.Sampler keeps what each
asked for and has said, for penalties and the like, and tells each token's log-probability. At the end every text is drawn
again alone, and must be the same: the batch leaves no trace.

    PYTHONPATH=build-python/python python3 examples/python/serving_loop.py
"""
import collections

import numpy
import raffle

VOCAB, SLOTS, END = 500, 4, 0
Request = collections.namedtuple("Request", "name prompt tokens params")
REQUESTS = [
    Request("poem", [3, 14], 12, dict(temperature=1.1, top_p=0.95, seed=1, no_repeat_ngram_size=2)),
    Request("code", [15, 92], 9, dict(temperature=0.2, top_k=20, seed=2)),
    Request("fact", [65, 35], 5, dict(temperature=0.0, banned_token_ids=[13], stop_token_ids=[END], min_tokens=5)),
    Request("chat", [89, 79], 14, dict(temperature=0.8, min_p=0.05, seed=3, repetition_penalty=1.2, presence_penalty=0.5)),
    Request("list", [32, 38], 8, dict(temperature=0.7, top_k=50, top_p=0.9, seed=4, logit_bias={7: 2.0, 8: -1.5})),
    Request("joke", [46, 26], 10, dict(temperature=1.3, top_k=100, seed=5)),
]


def model(texts):
    """A stand-in for a language model: logits [len(texts), VOCAB] that depend on each text alone."""
    return numpy.stack([numpy.random.default_rng(text[-2:]).normal(0, 3, VOCAB) for text in texts]).astype(numpy.float32)


def serve(requests):
    """Continuous batching: a request joins as soon as a slot is free and leaves when it is done."""
    sampler = raffle.Sampler(SLOTS, vocab=VOCAB, history_max=64)
    waiting, running, texts = collections.deque(requests), {}, {}
    while waiting or running:
        while waiting and len(running) < SLOTS:
            request = waiting.popleft()
            slot = sampler.add(**request.params)
            sampler.set_prompt(slot, request.prompt)
            running[slot] = (request, list(request.prompt), [])
        slots = list(running)
        logits = model([running[slot][1] for slot in slots])
        tokens, told = sampler.sample(logits, slots, logprobs=0)
        for slot, token, logprob in zip(slots, tokens.tolist(), told.logprob.tolist()):
            request, text, logprobs = running[slot]
            text.append(token)
            logprobs.append(logprob)
            if token == END or len(text) - len(request.prompt) == request.tokens:
                texts[request.name] = text, sum(logprobs) / len(logprobs)
                sampler.remove(slot)
                del running[slot]
    return texts


def alone(request):
    """By plain calls that are told the whole text."""
    text, prompt = list(request.prompt), request.prompt
    for position in range(request.tokens):
        text.append(int(raffle.sample(model([text])[0], position=position, prompt_token_ids=prompt,
                                      output_token_ids=text[len(prompt):], **request.params)))
        if text[-1] == END:
            break
    return text


def main():
    texts = serve(REQUESTS)
    for request in REQUESTS:
        text, logprob = texts[request.name]
        same = text == alone(request)
        print(f"{request.name}: {text}, {logprob:.2f} a token{'' if same else '; differs from the text drawn alone'}")
        assert same


main()
