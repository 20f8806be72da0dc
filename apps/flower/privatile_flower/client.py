"""The site's side: a Flower ClientApp over the same responder and ledger as everywhere else.

Flower may deliver a message again after a lost reply, start a new process for it, and forget what the client knew. The
ledger protects the records: the same question gets the stored count, a changed question for the same round is refused,
and no record answers twice. Nothing is kept in Flower's own state. Every message says how many records the coordinator
has counts of; a ledger that knows of fewer was restored from a backup, or is new, and its client refuses.

Flower sends the text of an exception to the server. So no exception leaves a client: the site's log gets the text, the
coordinator only the kind of error.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.randomizer import Coins, OperatingSystemCoins
from privatile.client.sources.databases import open_source
from privatile.core.messages import Question
from privatile.errors import InputError, LedgerError, PrivatileError
from privatile.federation.site.limits import check_questions
from privatile.federation.site.responder import SiteResponder, open_responder
from privatile_flower.study import RECORD, Settings, read_study, read_text

log = logging.getLogger("privatile_flower.client")

MakeCoins = Callable[[str, Ledger], Coins]
"""A client's coins, given its name and its ledger."""


def client_app(
    open_site: Callable[[Context], AbstractContextManager[SiteResponder]],
    *,
    name: Callable[[Context], str],
    check: Callable[[Context, Sequence[Question]], None] = lambda context, questions: None,
) -> ClientApp:
    """A ClientApp that answers with the responder of `open_site(context)`, opened again for every message.

    `name(context)` is the client's name in the run. `check(context, questions)` raises an error for questions that the
    site does not accept, before any record answers.
    """
    flower_app = ClientApp()

    @flower_app.query()  # type: ignore[untyped-decorator]
    def query(message: Message, context: Context) -> Message:
        reply: dict[str, Any] = {}
        try:
            reply["client"] = name(context)
            with open_site(context) as responder:
                questions = _questions_for(reply["client"], message, responder)
                check(context, questions)
                # All questions of a message are answered, or none.
                answers = responder.answer(questions) if questions else ()
            reply["answers"] = [answer.to_json() for answer in answers]
        except PrivatileError as error:
            log.error("refused: %s", error)
            reply["refused"] = type(error).__name__
        except Exception as error:
            # The text of an error from a library that reads data may contain a value: not even the log gets it.
            log.error("failed: %s", type(error).__name__)
            reply["failed"] = type(error).__name__
        return Message(RecordDict({RECORD: ConfigRecord(reply)}), reply_to=message)

    return flower_app


def _questions_for(client: str, message: Message, responder: SiteResponder) -> list[Question]:
    """The questions addressed to this client, if its ledger knows of every count that the coordinator has."""
    asked, known = message.content[RECORD], responder.account.state().asked
    questions = []
    for addressee, text, given in zip(asked["clients"], asked["questions"], asked["given"], strict=True):
        if addressee != client:
            continue
        # A count is on the disk before it leaves: a ledger that holds fewer is not the one that gave them.
        if known < given:
            raise LedgerError(
                f"the coordinator has counts of {given} records of this run; the ledger {responder.ledger.path} knows "
                f"of {known}. It was restored from a backup, or it is not the ledger that answered: records could "
                "answer twice. Give the ledger that answered; if it is lost, this client can no longer take part in "
                "the run."
            )
        questions.append(Question.from_json(text))
    return questions


def study_client_app(
    make_coins: MakeCoins = lambda client, ledger: OperatingSystemCoins(),
    *,
    settings: Callable[[Context], Settings] = lambda context: context.node_config,
) -> ClientApp:
    """The ClientApp of a site; `settings(context)` is the site's configuration, by default its node config."""
    return client_app(
        lambda context: open_study_site(settings(context), make_coins),
        name=lambda context: read_text(settings(context), "client"),
        check=lambda context, questions: check_questions(read_study(settings(context)), questions),
    )


@contextmanager
def open_study_site(settings: Settings, make_coins: MakeCoins) -> Iterator[SiteResponder]:
    """The site's responder, from its own study file, data, ledger and limit."""
    study, name, limit = read_study(settings), read_text(settings, "client"), settings.get("max-epsilon")
    if name not in study.clients:
        raise InputError(f"the study has no client {name!r:.60}; it has {', '.join(study.clients)}.")
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise InputError(
            "max-epsilon must be given in the node config, as a number: the most that one record may spend in its "
            f"lifetime; got {limit!r:.60}."
        )
    keys = read_text(settings, "keys") if "keys" in settings else None
    with Ledger.open(read_text(settings, "ledger"), keys=keys) as ledger:
        source = open_source(read_text(settings, "source"), value=read_text(settings, "value"))
        rules, coins = SpendingRules(max_epsilon=float(limit)), make_coins(name, ledger)
        # Flower does not tell a client when the run is over, so nothing would release what it reserves.
        yield open_responder(study, name, source, ledger, rules, coins=coins, reserve=False)


app = study_client_app()
