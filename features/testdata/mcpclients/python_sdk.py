"""The client of the official Python SDK, over HTTP, or over the standard streams of `dray mcp`."""

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import story


def connect(given):
    if "url" not in given:
        command = StdioServerParameters(command=given["dray"], args=given["args"])
        return Client(command, mode=given["mode"])
    http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + given["token"]}, timeout=240)
    return Client(streamable_http_client(given["url"], http_client=http), mode=given["mode"])


async def main(given):
    async with connect(given) as client:

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
        await story.tell(call, [tool.name for tool in listed.tools], given)


story.play(main)
