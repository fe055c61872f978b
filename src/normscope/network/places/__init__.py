"""Which model is meant: where its files are, which family it belongs to, how its names fit.

From outside, use `source_paths.check_sources`, `model_places.find_place` and `model_configs.read_config`;
`programs` loads objects of the user's own by name.
"""
