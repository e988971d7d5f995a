"""LangChain's adapter, whose tools an agent calls with tool_call messages."""

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ElicitResult

import story


async def main(given):
    lines = []

    async def report(_number, _total, message, _context):
        for line in lines:
            line(message)

    user = story.User(given)

    async def ask(_session, params, _context):
        return ElicitResult(action=user.answer(params.message))

    callbacks = Callbacks(on_progress=report, on_elicitation=ask)
    client = MultiServerMCPClient(
        {
            "dray": {
                "transport": "streamable_http",
                "url": given["url"],
                "headers": {"Authorization": "Bearer " + given["token"]},
            }
        },
        callbacks=callbacks,
    )
    async with client.session("dray") as session:
        loaded = await load_mcp_tools(session, callbacks=callbacks, server_name="dray")
        tools = {tool.name: tool for tool in loaded}

        async def call(name, arguments, progress):
            if progress:
                lines.append(progress)
            message = await tools[name].ainvoke(
                {"type": "tool_call", "id": "1", "name": name, "args": arguments}
            )
            value = message.artifact["structured_content"] if message.artifact else {}
            return story.Result(message.content[0]["text"], value, message.status == "error")

        await story.tell(call, tools, given, user, cancels=False)


story.play(main)
