"""All laws, in the order in which they are tried: what others rest on comes first."""

from mmcore.testing.law import Law
from mmcore.testing.laws.config import published_configs_are_served, strange_configs_are_refused
from mmcore.testing.laws.encoder import rows_are_finite, rows_are_the_item_s_own
from mmcore.testing.laws.keys import (
    a_key_is_the_content_s_own,
    other_parts_leave_keys_alone,
    what_changes_an_item_is_in_its_key,
)
from mmcore.testing.laws.limits import (
    any_header_is_measured_or_refused,
    strange_options_are_refused,
    too_many_items_are_refused,
)
from mmcore.testing.laws.manifest import manifest_is_light
from mmcore.testing.laws.media import bad_media_are_refused
from mmcore.testing.laws.parity import answers_equal_the_reference
from mmcore.testing.laws.pickle import adapter_and_requests_pickle
from mmcore.testing.laws.positions import positions_fit_the_decoder, positions_sliced_are_positions_whole
from mmcore.testing.laws.preprocess import (
    preprocess_equals_the_published_processor,
    preprocess_is_pure,
    preprocess_is_the_same_in_a_process,
    preprocess_is_the_same_in_threads,
)
from mmcore.testing.laws.prompts import (
    a_typed_placeholder_takes_no_slot,
    text_alone_is_untouched,
    the_template_is_the_checkpoint_s_own,
)
from mmcore.testing.laws.ranges import (
    media_keep_their_order,
    pieces_place_each_row_once,
    ranges_use_each_row_once,
)
from mmcore.testing.laws.rows import measure_counts_rows
from mmcore.testing.laws.schedule import (
    a_batch_changes_nothing,
    a_cached_prefix_changes_nothing,
    chunks_change_nothing,
    preemption_changes_nothing,
)
from mmcore.testing.laws.weights import every_tensor_has_one_place, tensor_parallel_parts_make_the_whole

LAWS: tuple[Law, ...] = (
    manifest_is_light,
    published_configs_are_served,
    strange_configs_are_refused,
    any_header_is_measured_or_refused,
    too_many_items_are_refused,
    strange_options_are_refused,
    pieces_place_each_row_once,
    ranges_use_each_row_once,
    media_keep_their_order,
    text_alone_is_untouched,
    a_typed_placeholder_takes_no_slot,
    the_template_is_the_checkpoint_s_own,
    bad_media_are_refused,
    adapter_and_requests_pickle,
    preprocess_is_pure,
    preprocess_is_the_same_in_threads,
    preprocess_is_the_same_in_a_process,
    preprocess_equals_the_published_processor,
    every_tensor_has_one_place,
    tensor_parallel_parts_make_the_whole,
    measure_counts_rows,
    rows_are_the_item_s_own,
    rows_are_finite,
    a_key_is_the_content_s_own,
    what_changes_an_item_is_in_its_key,
    other_parts_leave_keys_alone,
    positions_fit_the_decoder,
    positions_sliced_are_positions_whole,
    chunks_change_nothing,
    a_cached_prefix_changes_nothing,
    a_batch_changes_nothing,
    preemption_changes_nothing,
    answers_equal_the_reference,
)
