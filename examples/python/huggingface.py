#!/usr/bin/env python3
"""Text from a Hugging Face model, selected by raffle alone.

    python3 examples/python/huggingface.py MODEL "a prompt" [--samples 3] [--temperature 0.8] [--top-p 0.9] [--seed 1]

MODEL is a folder or a name that transformers knows. The same seed gives the same texts on CPU and GPU, as far as the
model gives the same logits there.
"""
import argparse

import torch
import transformers
from raffle.transformers import generate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompt")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model).to(device).eval()
    prompt = tokenizer(options.prompt, return_tensors="pt").input_ids.to(device).repeat(options.samples, 1)
    texts = generate(model, prompt, options.tokens, temperature=options.temperature, top_p=options.top_p,
                     seed=list(range(options.seed, options.seed + options.samples)), eos_token_id=tokenizer.eos_token_id)
    for i, text in enumerate(texts):
        print(f"--- seed {options.seed + i}\n{tokenizer.decode(text, skip_special_tokens=True)}")


main()
