"""The client of the official Python SDK, over HTTP, or over the standard streams of `dray mcp`."""

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

import story


def server(given):
    if "url" not in given:
        return StdioServerParameters(command=given["dray"], args=given["args"])
    http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + given["token"]}, timeout=240)
    return streamable_http_client(given["url"], http_client=http)


async def main(given):
    user = story.User(given)

    async def ask(_context, params):
        return ElicitResult(action=user.answer(params.message))

    async with Client(server(given), mode=given["mode"], elicitation_callback=ask) as client:

        async def call(name, arguments, progress):
            async def report(_number, _total, message):
                progress(message)

            result = await client.call_tool(
                name, arguments, progress_callback=report if progress else None
            )
            return story.Result(
                result.content[0].text, result.structured_content, result.is_error
            )

        listed = await client.list_tools()
        await story.tell(call, [tool.name for tool in listed.tools], given, user)


story.play(main)
