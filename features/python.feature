Feature: An agent runs Python in a session
  A session is a Python process in the container. Its variables stay between calls, a call has one outcome on every interface, and what is lost is
  reported.

  Background:
    Given the call request includes {"container": "py"}

  Rule: State

    @PY-01 @PY-03 @PY-04 @PY-22
    Scenario: Variables of one call are there in the next
      When I call the tool python with {"code": "import math\nx = 20"}
      Then the call succeeds with reason exited
      And /output/value is null
      And /output/globals is {}
      And /output/error is null
      And /output/files is null
      And /output/session is "default"
      And /output/runtime is "container"
      And /output/generation is 1
      And /output/restarted is false
      And /output/discarded_state is false
      When I call the tool python with {"code": "print('seen', math.pi > 3)\nx + y", "inputs": {"y": 22}, "globals": ["x", "nothing"]}
      Then the call succeeds with reason exited
      And /output/value is 42
      And /output/globals is {"x": 20}
      And /output/missing is ["nothing"]
      And stdout is "seen True\n"
      And /output/stdout is "seen True\n"
      And /output/generation is 1
      And /output/usage/wall_ms is above 0
      And /output/usage/memory_bytes is above 0

    @PY-04 @PY-17
    Scenario: Sessions share no variables, and fresh state has none
      When I call the tool python with {"session": "a", "code": "secret = 1"}
      And I call the tool python with {"session": "b", "code": "'secret' in globals()"}
      Then /output/value is false
      When I call the tool python with {"session": "a", "state": "fresh", "code": "'secret' in globals()"}
      Then /output/value is false
      When I call the tool python with {"session": "a", "code": "secret"}
      Then /output/value is 1

    @PY-03 @PY-04 @PY-28
    Scenario: Directory, variables and stdin are those of the call, and do not stay
      Given the call request includes {"container": "py", "cwd": "{workspace}/sub", "env": {"GREETING": "hello"}, "stdin": "typed\n"}
      When I call the tool python with {"session": "env", "code": "import os\nos.getcwd(), os.environ['GREETING'], os.environ['DRAY_CALL_ID'] != '', input()"}
      Then the call succeeds
      And /output/value is ["/workspaces/app/sub", "hello", true, "typed"]
      Given the call request includes {"cwd": "/workspaces/app", "env": {"OTHER": "x"}, "stdin": ""}
      When I call the tool python with {"session": "env", "code": "os.getcwd(), 'GREETING' in os.environ"}
      Then /output/value is ["/workspaces/app", false]
      When I call the tool python with {"session": "env", "code": "input()"}
      Then /output/error/message matches "^EOFError"

    @PY-13
    Scenario: A script is a program with the caller's path
      Given a file {workspace}/show.py containing "import sys\nprint(__name__, __file__, sys.argv[1:])\n"
      When I call the tool python with {"file": "{workspace}/show.py", "argv": ["--year", "2026"]}
      Then stdout is "__main__ /workspaces/app/show.py ['--year', '2026']\n"
      When I call the tool python with {"file": "show.py"}
      Then stdout is "__main__ /workspaces/app/show.py []\n"
      When I call the tool python with {"file": "{workspace}/none.py"}
      Then the call fails with reason exited
      And /exit_code is 2
      And the error code is not_found
      And /output/code is 2
      And /output/error/message matches "can't open file"

  Rule: Ends

    @PY-18 @PY-21
    Scenario: An exception is an exit with 1, and a traceback that is not in stderr
      When I call the tool python with {"code": "def f():\n    return 1/0\nf()"}
      Then the call fails with reason exited
      And /exit_code is 1
      And /error/message is "ZeroDivisionError: division by zero"
      And /output/code is 1
      And /output/error/code is ""
      And /output/error/message is "ZeroDivisionError: division by zero"
      And /output/error/traceback matches "line 2, in f"
      And stderr is ""
      And the audit log records reason "exited" for the call
      And the audit log records exit_code 1 for the call

    @PY-05
    Scenario: A value that is too large is refused with its own code
      When I call the tool python with {"code": "'x' * (5 << 20)"}
      Then the call fails with reason exited
      And /exit_code is 1
      And /error/code is absent
      And /output/error/code is "ERR_PAYLOAD_TOO_LARGE"
      And /output/value is null

    @EX-12
    Scenario: A working directory that does not exist ends the call as for a program
      Given the call request includes {"container": "py", "cwd": "/nowhere"}
      When I call the tool python with {"code": "1"}
      Then the call fails with reason start_failed
      And the error code is bad_cwd
      And /output/error/code is "bad_cwd"

    @PM-10
    Scenario: Paths in tracebacks are the caller's if the call asks for that
      Given a file {workspace}/fails.py containing "print(__file__)\n1/0\n"
      And the call request includes {"container": "py", "rewrite_text": true}
      When I call the tool python with {"file": "fails.py"}
      Then the call fails with reason exited
      And /output/error/traceback matches "File \"{workspace}/fails.py\", line 2"
      And /output/stdout is "{workspace}/fails.py\n"

    @PY-18 @PY-21
    Scenario: SystemExit has its code
      When I call the tool python with {"code": "raise SystemExit(7)"}
      Then the call fails with reason exited
      And /exit_code is 7
      And /output/code is 7
      And /output/error is null
      When I call the tool python with {"code": "raise SystemExit(0)"}
      Then the call succeeds with reason exited

    @PY-06 @PY-21
    Scenario: A run that takes too long is a timeout everywhere, and keeps its variables
      When I call the tool python with {"session": "slow", "code": "kept = 5"}
      Given the call request includes {"container": "py", "timeout_seconds": 0.5}
      When I call the tool python with {"session": "slow", "code": "while True: pass"}
      Then the call fails with reason timeout
      And /output/ok is false
      And /output/code is 124
      And /output/error/message matches "^wall time limit exceeded"
      And the error message contains "wall time limit exceeded"
      And /metadata/kill/survivors is null
      And the audit log records reason "timeout" for the call
      When I call the tool python with {"session": "slow", "code": "kept"}
      Then /output/value is 5
      And /output/discarded_state is false
      When I run dray python --container py --session slow --timeout 500ms -m http.server
      Then the exit code is 124
      And stderr of the command contains "wall time limit exceeded"

    @PY-06 @PY-07
    Scenario: Code that swallows the interrupt is killed, and the loss is reported
      Given the call request includes {"container": "py", "timeout_seconds": 0.5}
      When I call the tool python with {"session": "deaf", "code": "import time\nlost = 1\nwhile True:\n    try: time.sleep(1000)\n    except BaseException: pass"}
      Then the call fails with reason timeout
      And /output/code is 124
      And /metadata/warnings matches "its variables are lost"
      And /metadata/kill/survivors is 0
      When I call the tool python with {"session": "deaf", "code": "'lost' in globals()"}
      Then /output/value is false
      And /output/restarted is true
      And /output/discarded_state is true
      And /output/generation is 2

    @PY-06 @PY-18
    Scenario: A cancel interrupts the code
      Given a running call of python has printed "ready", with {"session": "cancelled", "code": "kept = 6\nprint('ready', flush=True)\nimport time\ntime.sleep(1000)"}
      When I cancel the call
      Then the end event has reason cancelled
      When I call the tool python with {"session": "cancelled", "code": "kept"}
      Then /output/value is 6

    @PY-06 @PY-21
    Scenario: The events end with the same timeout
      Given the call request includes {"container": "py", "timeout_seconds": 1}
      And a running call of python has printed "ready", with {"session": "events", "code": "print('ready', flush=True)\nwhile True: pass"}
      Then the end event has reason timeout
      And /invocation/output/code is 124
      And /invocation/exit_code is null
      And /invocation/status is "failed"

    @PY-08
    Scenario: Code that ends its own process is typed, and the next call works
      When I call the tool python with {"session": "gone", "code": "import os\nos._exit(3)"}
      Then the call fails with reason unavailable
      And the error code is agent_lost
      And /output/error/code is "agent_lost"
      When I call the tool python with {"session": "gone", "code": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"}
      Then the call fails with reason signalled
      And /output/code is 137
      When I call the tool python with {"session": "gone", "code": "1 + 1"}
      Then /output/value is 2
      And /output/discarded_state is true

    Scenario: A flood of output is bounded
      When I call the tool python with {"session": "flood", "code": "for _ in range(100): print('x' * 99_999)"}
      Then the call succeeds
      And /stdout/total_bytes is 10000000
      And /output/stdout matches "bytes omitted"
      And /stdout/head_bytes is 16384

  Rule: Operations

    @PY-01 @PY-17 @PY-25
    Scenario: status, interrupt and reset
      When I call the tool python with {"session": "ops", "code": "x = 1"}
      And I call the tool python with {"session": "ops", "operation": "status"}
      Then the call succeeds with reason exited
      And /output/sessions/0/session is "ops"
      And /output/sessions/0/runtime is "container"
      And /output/sessions/0/state is "idle"
      And /output/sessions/0/has_state is true
      And /output/capabilities/container/transactional is false
      When I call the tool python with {"session": "ops", "operation": "interrupt"}
      Then /output/interrupted is false
      When I call the tool python with {"session": "ops", "operation": "reset"}
      Then the call succeeds
      And /output/discarded_state is true
      When I call the tool python with {"session": "ops", "operation": "reset"}
      Then /output/discarded_state is false
      When I call the tool python with {"session": "none", "operation": "reset"}
      Then the call fails with reason invalid
      And the error code is not_found

    @PY-01 @PY-18 @PY-19
    Scenario Outline: What the runtime cannot do is refused
      When I call the tool python with <input>
      Then the call fails with reason invalid
      And the error code is unsupported
      And the error has a hint
      And no process was started

      Examples:
        | input                                        |
        | {"code": "1", "read_only": true}             |
        | {"code": "1", "permissions": {"fs": "none"}} |

    @PY-02
    Scenario: Sessions of the runtime container never run on the host
      Given a new call request
      And the call request includes {"environment": "host"}
      When I call the tool python with {"code": "1"}
      Then the call fails with reason invalid
      And the error code is unsupported
      And the error has a hint
      And no process was started
      When I send POST /v1/route with {"tool": "python", "environment": "host"}
      Then /environment is "host"
      And /error/code is "unsupported"
      When I send POST /v1/route with {"tool": "python", "container": "py", "input": {"code": "1"}}
      Then /environment is "container"
      And /error is absent

    @PY-03
    Scenario Outline: Invalid input starts nothing
      When I call the tool python with <input>
      Then the request fails with status 400 and code invalid_input
      And /errors/0/pointer is "<pointer>"

      Examples:
        | input                                                        | pointer                  |
        | {"code": "1", "file": "x.py"}                                | /input/code              |
        | {"code": "1", "timeout": 5}                                  | /input/timeout           |
        | {"code": "1", "runtime": "jupyter"}                          | /input/runtime           |
        | {"code": ""}                                                 | /input/code              |
        | {"operation": "prepare", "python": {"executable": "python"}} | /input/python/executable |

  Rule: The command line

    @PY-13 @PY-21
    Scenario: dray python behaves like python3 and keeps the session
      When I run dray python --container py --session cli -c n=41
      Then the exit code is 0
      When I run dray python --container py -c print(n+1) --session cli
      Then the exit code is 0
      And stdout of the command contains "42"
      When I run dray python --container py --session cli -c n/0
      Then the exit code is 1
      And stderr of the command contains "ZeroDivisionError: division by zero"
      When I run dray python --container py --session cli -c exit(9)
      Then the exit code is 9
      When I run dray python --container py --session cli none.py
      Then the exit code is 2
      And stderr of the command contains "hint: check the path"
      When I run dray python --container py --session cli statsu
      Then the exit code is 2
      And stderr of the command contains "dray python status"
      When I run dray python --container py --version
      Then stdout of the command contains "Python 3."
      When I run dray python status --container py --session cli
      Then stdout of the command contains "cli      container  idle   1"
      When I run dray python reset --container py --session cli
      Then the exit code is 0
      When I run dray python reset --container py --session none
      Then the exit code is 5

    @AU-08
    Scenario: The audit log counts calls of python
      When I call the tool python with {"code": "1"}
      And I send GET /v1/audit/stats?by=tool
      Then the response has status 200
      And /items matches "key:python"
