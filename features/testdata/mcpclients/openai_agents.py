"""The MCP server of the OpenAI Agents SDK, with which an agent calls tools.

It gives its MCP client nothing that asks a user, so its calls are decided about outside. A caller
of call_tool chooses the progress token, and the message handler gets the notifications.
"""

from agents.mcp import MCPServerStreamableHttp
from mcp.types import ProgressNotification

import story


async def main(given):
    lines = []

    async def receive(message):
        if isinstance(message, ProgressNotification):
            for line in lines:
                line(message.params.message)

    server = MCPServerStreamableHttp(
        {
            "url": given["url"],
            "headers": {"Authorization": "Bearer " + given["token"]},
            "timeout": 240,
        },
        client_session_timeout_seconds=240,
        message_handler=receive,
    )
    async with server:

        async def call(name, arguments, progress):
            meta = None
            if progress:
                lines.append(progress)
                meta = {"progressToken": name}
            result = await server.call_tool(name, arguments, meta)
            return story.Result(
                result.content[0].text, result.structured_content, result.is_error
            )

        tools = [tool.name for tool in await server.list_tools()]
        await story.tell(call, tools, given)


story.play(main)
