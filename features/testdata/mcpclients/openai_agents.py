"""The MCP server of the OpenAI Agents SDK, with which an agent calls tools. It has no progress."""

from agents.mcp import MCPServerStreamableHttp

import story


async def main(given):
    server = MCPServerStreamableHttp(
        {
            "url": given["url"],
            "headers": {"Authorization": "Bearer " + given["token"]},
            "timeout": 240,
        },
        client_session_timeout_seconds=240,
    )
    async with server:

        async def call(name, arguments, _progress):
            result = await server.call_tool(name, arguments)
            return story.Result(
                result.content[0].text, result.structured_content, result.is_error
            )

        tools = [tool.name for tool in await server.list_tools()]
        await story.tell(call, tools, given, progress=False)


story.play(main)
