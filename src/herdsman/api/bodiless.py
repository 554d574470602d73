"""HEAD, where GET is open to all: probes and link checkers ask so."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herdsman.api.access import open_to_all


class Bodiless:
    """The answer of GET without its body. Elsewhere HEAD is as unknown as it was."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or not open_to_all("GET", scope["path"]):
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            body = message["type"] == "http.response.body"
            await send({**message, "body": b""} if body else message)

        await self._app({**scope, "method": "GET"}, receive, send_head)
