"""Decoding rules that fail, fail the request that they served; the engine and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from engine.bad_batch import PARAMS, SMALL, check_clean
from engine.faulty import FAULTS, Odd, fails_alone, is_victim, own, prompts_of, running

from mmcore import LLM, SamplingParams
from mmcore.adapter import LogitsEdit
from mmcore.errors import RequestError


@dataclass(frozen=True)
class FaultyDecoding:
    """The family's decoding, with one member that fails for the victim."""

    inner: Any
    member: str
    fault: Callable[[], Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def stop_rule(self, request: Any) -> Any:
        if self.member == "stop_rule" and is_victim(request):
            return self.fault()
        if self.member == "observe" and is_victim(request):
            return FaultyStop(self.fault)
        return self.inner.stop_rule(request)

    def logits_rules(self, request: Any) -> Any:
        if self.member == "logits_rules" and is_victim(request):
            return self.fault()
        if self.member == "edit" and is_victim(request):
            return (FaultyRule(self.fault),)
        return self.inner.logits_rules(request)

    def finish(self, generation: Any) -> Any:
        if self.member == "finish" and is_victim(generation.request):
            return self.fault()
        return self.inner.finish(generation)

    def follow_up(self, request: Any, result: Any) -> Any:
        if self.member == "follow_up" and is_victim(request):
            return self.fault()
        return self.inner.follow_up(request, result)


@dataclass
class FaultyStop:
    fault: Callable[[], Any]
    seen: int = 0

    def observe(self, token_id: int, logit: float, logprob: float) -> bool:
        self.seen += 1
        return bool(self.fault()) if self.seen == 3 else False


@dataclass(frozen=True)
class FaultyRule:
    fault: Callable[[], Any]
    needs_host_ids: bool = True

    def edit(self, generated: Sequence[int]) -> LogitsEdit:
        return self.fault() if len(generated) == 2 else LogitsEdit()


MEMBERS = ["stop_rule", "observe", "logits_rules", "edit", "finish", "follow_up"]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", ["pictures", "sounds"])
@pytest.mark.parametrize("member", MEMBERS)
def test_faulty_decoding(drives: Any, name: str, member: str, n: int) -> None:
    family = drives[name].family
    for fault in FAULTS:
        decoding = FaultyDecoding(family.adapter.decoding, member, fault)
        message = "own words" if fault is own else r"adapter '\w+' failed .*(Odd|SystemExit)"
        with running(family, replace(family.adapter, decoding=decoding)) as llm:
            fails_alone(llm, prompts_of(name), RequestError, message, n=n)


@pytest.mark.parametrize("member", ["edit", "finish"])
def test_decoding_that_gives_nonsense(drives: Any, member: str) -> None:
    family = drives["pictures"].family
    decoding = FaultyDecoding(family.adapter.decoding, member, lambda: "nonsense")
    with running(family, replace(family.adapter, decoding=decoding)) as llm:
        fails_alone(llm, prompts_of("pictures"), RequestError, "failed .*TypeError")


def test_a_rule_that_allows_nothing(drives: Any) -> None:
    family = drives["pictures"].family
    decoding = FaultyDecoding(family.adapter.decoding, "edit", lambda: LogitsEdit(allowed=(10**9, -5)))
    with running(family, replace(family.adapter, decoding=decoding)) as llm:
        fails_alone(llm, prompts_of("pictures"), RequestError, "logits are not finite")


# ------------------------------------------------------------------ observers


def test_an_observer_that_raises_is_harmless(
    picture_family: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from mmcore.hookspecs import hookimpl
    from mmcore.plugins.records import LoadedPlugin

    class Nosy:
        @hookimpl
        def mmcore_step_finished(self, stats: Any) -> None:
            raise Odd("step")

        @hookimpl
        def mmcore_request_finished(self, output: Any) -> None:
            raise Odd("request")

    with LLM(picture_family.folder, device="cpu", kv_cache_config=SMALL) as llm:
        alone = llm.generate("Hello", PARAMS).token_ids
        registry: Any = llm._engine._observers
        plugin = Nosy()
        registry._manager.register(plugin, name="nosy")
        origin = registry.inventory.plugins[0].origin
        loaded = (*registry.inventory.plugins, LoadedPlugin(origin, plugin, (), ()))
        registry.inventory = replace(registry.inventory, plugins=loaded)
        assert llm.generate("Hello", PARAMS).token_ids == alone
        assert llm.generate("Hello", SamplingParams(max_tokens=2)).error is None
        check_clean(llm)
    assert "mmcore_request_finished" in caplog.text
