"""A key is revoked or replaced while its answer waits for the round to close: the answer counts, under that key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from privatile.federation.operations.record import release, verify_record
from privatile.federation.setup.folder import revoke
from tests.federation.kit import PATIENCE, Federation, make_study, tasks, until

ROUNDS = 5


@pytest.mark.network
@pytest.mark.parametrize("change", ["revoked", "rotated"])
def test_an_answer_stays_under_the_key_that_gave_it(tmp_path: Path, change: str) -> None:
    # The first round waits for all clients, so site0's answer waits for site1's; later rounds close without site0.
    quorum = 1 if change == "revoked" else 2
    federation = Federation(tmp_path, make_study(2, rounds=ROUNDS, length=2, quorum=quorum, patience=ROUNDS))
    old_signer = federation.sites["site0"].key().public.signer

    async def scene() -> None:
        run = federation.open_run()
        async with federation.running_broker():
            coordinator, old = federation.coordinator(run), federation.client("site0")
            async with tasks(coordinator.run(), old.run()) as (work, answering):
                await until(lambda: coordinator.metrics.value("counted", client="site0") == 1)
                old.stop()
                await answering
                if change == "revoked":
                    await asyncio.to_thread(revoke, federation.directory, "site0")
                else:
                    await asyncio.to_thread(federation.enroll, "site0", new_key=True)
                await until(lambda: work.done() or change in {event.kind for event in run.journal.events()})
                assert run.coordinator.done == 0  # the answer was in, the round still open
                names = ["site1"] if change == "revoked" else ["site0", "site1"]
                async with tasks(*(federation.client(name).run() for name in names)):
                    assert await asyncio.wait_for(work, PATIENCE) == "finished"
        signed = dict(run.store.query("SELECT round, signer FROM evidence WHERE client = 'site0'"))
        signers = [signed.get(number) for number in range(1, ROUNDS + 1)]
        after = None if change == "revoked" else federation.sites["site0"].key().public.signer
        assert signers == [old_signer] + [after] * (ROUNDS - 1)
        run.store.close()

    asyncio.run(scene())
    record = release(federation.directory)
    if change == "rotated":
        record = federation.countersigned(record, "site0")
    checked = verify_record(record, federation.directory.store_file)
    assert checked.failed == []
    counted = ROUNDS + 1 if change == "revoked" else 2 * ROUNDS
    assert any(f"all {counted} signatures of clients hold" in text for text in checked.passed)
    spent = record["body"]["spent"]["site0"]
    assert (spent["records"], spent["silent_rounds"]) == ((2, ROUNDS - 1) if change == "revoked" else (2 * ROUNDS, 0))


@pytest.mark.network
def test_a_key_that_has_not_answered_yet_may_countersign(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2, rounds=ROUNDS, length=1))
    asyncio.run(federation.run()).store.close()
    before = release(federation.directory)
    key = federation.enroll("site0", new_key=True).key()
    after = federation.countersigned(release(federation.directory), "site0")
    checked = verify_record(after, federation.directory.store_file)
    assert checked.failed == []
    assert "client site0 has countersigned it" in checked.passed
    # A record made before the key was admitted does not name it, and says so.
    failed = verify_record(federation.countersigned(before, "site0", key)).failed
    assert len(failed) == 1
    assert "not the one the record names" in failed[0]
