"""The adapter of Nougat and Donut: a page's rows, cross-attended by the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcore.adapter import Adapter, CheckpointFiles, Fusion
from mmcore.parts.fields import reads_checkpoint
from mmcore.parts.settings import picture_settings
from mmcore_nougat.config import decoder_config, is_paper, page_encoder, page_processor
from mmcore_nougat.decoding import read_decoding
from mmcore_nougat.prompt import PagePrompt
from mmcore_nougat.weights import ignored_weights, weight_rules


class NougatAdapter:
    """Makes the adapter for one checkpoint."""

    @staticmethod
    @reads_checkpoint
    def from_config(config: Mapping[str, Any], files: CheckpointFiles) -> Adapter:
        """Raises `CheckpointError` for other encoders and decoders than Donut's Swin and mBART."""
        settings = picture_settings(files)
        decoder, encoder, paper = decoder_config(config), page_encoder(config, settings), is_paper(settings)
        stored, tied = files.tensor_names, decoder.tied_head
        return Adapter(
            name="nougat",
            prompt=PagePrompt.from_files(files, "<s>" if paper else "<"),
            inputs=page_processor(settings, encoder),
            encoder=encoder,
            decoding=read_decoding(config, files, paper=paper),
            decoder=decoder,
            placeholders=(),
            weights=tuple(weight_rules(stored, tied_head=tied)),
            ignored=tuple(ignored_weights(stored, tied_head=tied)),
            fusion=Fusion.CROSS_ATTENTION,
        )
