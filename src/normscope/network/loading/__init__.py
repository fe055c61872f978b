"""Find the models that a user names, and load them: checkpoints, configs, tokenizers, build functions.

From outside, use `model_search.find_models`, `pretrained.load_model`, `pretrained.load_tokenizer`
and `placement.Placement`.
"""
