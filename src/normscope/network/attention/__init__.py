"""What attention maps show: how much is certain of each row, where heads attend, what they put out.

From outside, use `attention_maps.AttentionObserver`, `patterns` and `agreement.AgreementWatcher`.
"""
