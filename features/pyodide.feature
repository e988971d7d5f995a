Feature: An agent runs Python without a container
  Sessions of the runtime pyodide run on the host, also in a workspace with a devcontainer. They start no container. Without the permission fs they need no
  host.roots, because their code touches no directory of the host.

  Background:
    Given the call request includes {"workspace": "{workspace}"}

  @PY-02 @PY-17 @RT-03
  Scenario: A call runs on the host, and starts no container
    When I send POST /v1/route with {"tool": "python", "workspace": "{workspace}", "input": {"code": "1", "runtime": "pyodide"}}
    Then /environment is "host"
    And /rule is "tool.environment"
    And /error is absent
    When I call the tool python with {"code": "x = 20", "runtime": "pyodide"}
    Then the call succeeds with reason exited
    And /route/environment is "host"
    And /route/rule is "tool.environment"
    And /output/runtime is "pyodide"
    When I call the tool python with {"code": "import os\nx + 1, os.path.exists('{workspace}/sub/data.txt')", "runtime": "pyodide"}
    Then /output/value is [21, false]
    And no container of the workspace exists

  @PY-17
  Scenario: A session belongs to the workspace, whatever the working directory is
    When I call the tool python with {"session": "own", "code": "x = 1", "runtime": "pyodide"}
    And the call request includes {"cwd": "sub"}
    And I call the tool python with {"session": "own", "code": "x", "runtime": "pyodide"}
    Then /output/value is 1
    Given a new call request
    And the call request includes {"workspace": "{workspace}/sub"}
    When I call the tool python with {"session": "own", "code": "'x' in globals()", "runtime": "pyodide"}
    Then /output/value is false
    And /output/generation is 1

  @PY-01 @PY-17 @PY-25
  Scenario: The other operations go where the session is
    When I call the tool python with {"session": "ops", "code": "x = 1", "runtime": "pyodide"}
    And I call the tool python with {"session": "ops", "operation": "status", "runtime": "pyodide"}
    Then /output/sessions/0/session is "ops"
    And /output/sessions/0/state is "idle"
    When I call the tool python with {"session": "ops", "operation": "interrupt", "runtime": "pyodide"}
    Then /output/interrupted is false
    When I call the tool python with {"session": "ops", "operation": "reset", "runtime": "pyodide"}
    Then /output/discarded_state is true
    When I call the tool python with {"session": "ops", "operation": "prepare", "runtime": "pyodide"}
    Then the error code is unsupported
    And no container of the workspace exists

  @PY-17
  Scenario: Operation status without a runtime lists the sessions of both
    When I call the tool python with {"session": "both", "code": "x = 1", "runtime": "pyodide"}
    And the call request includes {"context": {"plan_id": "boxed"}}
    And I call the tool python with {"session": "both", "code": "x = 2"}
    Then the call succeeds with reason exited
    When I call the tool python with {"operation": "status"}
    Then /output/sessions matches "runtime:container session:both state:idle"
    And /output/sessions matches "runtime:pyodide session:both state:idle"
    When I call the tool python with {"operation": "status", "runtime": "container"}
    Then /output/sessions/0/runtime is "container"
    And /output/sessions/1 is absent

  @RT-01 @RT-03 @PY-17
  Scenario Outline: A container for a session on the host is a conflict
    When I send the call request {"tool": "python", "workspace": "{workspace}", "input": {"code": "1", "runtime": "pyodide"}, <call>}
    Then the error code is route_conflict
    And the error has a hint
    When I send POST /v1/route with {"tool": "python", "workspace": "{workspace}", "input": {"code": "1", "runtime": "pyodide"}, <call>}
    Then /error/code is "route_conflict"
    And no container of the workspace exists

    Examples:
      | call                               |
      | "container": "py"                  |
      | "environment": "container"         |
      | "context": {"plan_id": "boxed"}    |
      | "plan": {"override": "py"}         |

  @PY-01 @PY-12 @PY-13
  Scenario Outline: A module is refused with code 2, before anything starts
    When I call the tool python with {"session": "-m", "module": "<module>", "runtime": "pyodide"}
    Then the call fails with reason invalid
    And the error code is unsupported
    And the error has a hint
    And no process was started
    And /output/code is 2
    And /output/error/code is "<code>"
    When I call the tool python with {"session": "-m", "operation": "status", "runtime": "pyodide"}
    Then the error code is not_found
    When I run dray python --workspace {workspace} --runtime pyodide -m <module>
    Then the exit code is 2
    And stderr of the command contains "does not support module"

    Examples:
      | module    | code                                   |
      | json.tool | unsupported                            |
      | pip       | ERR_PYTHON_PACKAGE_INSTALL_UNSUPPORTED |

  @PY-13
  Scenario: dray python in a workspace with a devcontainer
    When I run dray python --workspace {workspace} --runtime pyodide -c print(6*7)
    Then the exit code is 0
    And stdout of the command contains "42"
    When I run dray route explain python --workspace {workspace} --input {"code":"1","runtime":"pyodide"}
    Then the exit code is 0
    And stdout of the command contains "host"
    And no container of the workspace exists

  @PY-04 @PY-07 @PY-17 @PY-28
  Scenario: Variables stay between calls, and end with a reset
    When I call the tool python with {"session": "kept", "code": "x = 20", "runtime": "pyodide"}
    And I call the tool python with {"session": "kept", "code": "x + y", "inputs": {"y": 22}, "globals": ["x", "z"], "runtime": "pyodide"}
    Then the call succeeds with reason exited
    And /output/value is 42
    And /output/globals is {"x": 20}
    And /output/missing is ["z"]
    And /output/generation is 1
    When I call the tool python with {"session": "kept", "state": "fresh", "code": "'x' in globals()", "runtime": "pyodide"}
    Then /output/value is false
    When I call the tool python with {"session": "kept", "operation": "status", "runtime": "pyodide"}
    Then /output/sessions/0/state is "idle"
    And /output/sessions/0/has_state is true
    And /output/sessions/0/generation is 1
    When I call the tool python with {"session": "kept", "operation": "reset", "runtime": "pyodide"}
    Then /output/discarded_state is true
    When I call the tool python with {"session": "kept", "code": "'x' in globals()", "runtime": "pyodide"}
    Then /output/value is false
    And /output/generation is 2
    And /output/discarded_state is false

  @PY-06 @PY-25
  Scenario: An interrupt ends the code and keeps its variables
    Given a running call of python has printed "ready", with {"session": "stopped", "code": "kept = 6\nprint('ready', flush=True)\nimport time\ntime.sleep(1000)", "runtime": "pyodide"}
    When I call the tool python with {"session": "stopped", "operation": "interrupt", "runtime": "pyodide"}
    Then /output/interrupted is true
    And the end event has reason exited
    And /invocation/output/error/message is "KeyboardInterrupt"
    When I call the tool python with {"session": "stopped", "code": "kept", "runtime": "pyodide"}
    Then /output/value is 6

  @PY-06 @PY-21
  Scenario: Code that takes too long is a timeout everywhere, and keeps its variables
    When I call the tool python with {"session": "slow", "code": "kept = 5", "runtime": "pyodide"}
    Given the call request includes {"timeout_seconds": 0.5}
    When I call the tool python with {"session": "slow", "code": "while True: pass", "runtime": "pyodide"}
    Then the call fails with reason timeout
    And /exit_code is null
    And /output/code is 124
    And /output/error/message matches "^wall time limit exceeded"
    And the audit log records reason "timeout" for the call
    When I run dray python --workspace {workspace} --runtime pyodide --session slow --timeout 500ms -c sum(range(10**12))
    Then the exit code is 124
    And stderr of the command contains "wall time limit exceeded"
    Given the call request includes {"timeout_seconds": 60}
    When I call the tool python with {"session": "slow", "code": "'kept' in globals()", "runtime": "pyodide"}
    Then /output/value is false
    And /output/discarded_state is true

  @PY-12
  Scenario Outline: No package is installed
    When I call the tool python with {"session": "packages", "code": "<code>", "runtime": "pyodide"}
    Then the call fails with reason exited
    And /exit_code is 1
    And stdout is ""
    And /output/error/code is "ERR_PYTHON_PACKAGE_INSTALL_UNSUPPORTED"
    And the error message contains "cannot install packages"

    Examples:
      | code                                                               |
      | print(1); import micropip; await micropip.install('x')             |
      | print(1); import pyodide_js; await pyodide_js.loadPackage('numpy') |
      | print(1); import os; os.system('python -m pip install x')          |
      | !pip install x                                                     |

  @PY-12
  Scenario: The command line installs no package, and the word alone runs
    When I run dray python --workspace {workspace} --runtime pyodide -c __import__('pip')
    Then the exit code is 1
    And stderr of the command contains "pip cannot install packages in this runtime"
    When I run dray python --workspace {workspace} --runtime pyodide -c print('pip','loadPackage')
    Then the exit code is 0
    And stdout of the command contains "pip loadPackage"

  @PY-13 @PY-28
  Scenario: The command line keeps the session
    When I run dray python --workspace {workspace} --runtime pyodide --session cli -c n=41
    Then the exit code is 0
    When I run dray python --workspace {workspace} --runtime pyodide --session cli -c print(n+1)
    Then stdout of the command contains "42"
    When I run dray python --workspace {workspace} --runtime pyodide --session cli -c n/0
    Then the exit code is 1
    And stderr of the command contains "ZeroDivisionError: division by zero"
    When I run dray python --workspace {workspace} --runtime pyodide --session cli -c exit(9)
    Then the exit code is 9
    When I run dray python --workspace {workspace} --runtime pyodide --session cli -c input()
    Then the exit code is 1
    And stderr of the command contains "EOFError"
    When I run dray python status --workspace {workspace} --runtime pyodide --session cli
    Then stdout of the command contains "cli      pyodide  idle   1"
    When I run dray python reset --workspace {workspace} --runtime pyodide --session cli
    Then the exit code is 0
    When I run dray python reset --workspace {workspace} --runtime pyodide --session none
    Then the exit code is 5
