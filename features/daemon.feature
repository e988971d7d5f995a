Feature: The daemon: configuration, requests, logs and drain

  @CF-01
  Scenario Outline: A configuration error has the key, the origin and the fix
    When I start a daemon with the configuration
      """
      <configuration>
      """
    Then the daemon exits with 2
    And stderr of the command contains "{config}:<place>"
    And stderr of the command contains "<key>"
    And stderr of the command contains "<fix>"

    Examples:
      | configuration                            | place | key             | fix                  |
      | limits: {timeuot: 5s}                    | 1:10  | limits.timeuot  | timeout              |
      | limits: {timeout: -1s}                   | 1:19  | limits.timeout  | -1s                  |
      | limits: {timeout: 5}                     | 1:19  | limits.timeout  | 5s                   |
      | engine: {host: nowhere}                  | 1:16  | engine.host     | unix:///             |
      | tools: [{name: exec, argv: [true]}]      | 1:16  | tools[0].name   | built-in             |
      | tools: [{name: x, argv: [y], output_schema: {type: 5}, output: json}] | 1:45 | tools[0].output_schema | its type is 5 |
      | server: {socket: /tmp/s, socket: /tmp/t} | 1:26  | server.socket   | keep one of the two  |

  @PM-02 @PM-03 @PM-04 @CF-01
  Scenario Outline: An unusable mapping in the configuration is refused
    When I start a daemon with the configuration
      """
      containers: {c: {id: x, mappings: [{host: <host>, container: <container>}]}}
      """
    Then the daemon exits with 2
    And stderr of the command contains "containers.c.mappings[0]"
    And stderr of the command contains "<why>"

    Examples:
      | host     | container  | why       |
      | /        | /app       | "/"       |
      | /srv/app | /          | "/"       |
      | /srv/app | //         | "//"      |
      | srv/app  | /app       | srv/app   |
      | ""       | /app       | empty     |
      | /srv/../ | /app       | ..        |
      | /srv     | /srv/app   | /srv/app  |
      | /srv/app | /srv       | /srv/app  |

  @CF-02
  Scenario: Environment variables take precedence over the file
    Given the environment variable DRAY_LIMITS_MAX_TIMEOUT is "7s"
    And a daemon with the configuration
      """
      limits: {max_timeout: 5s, timeout: 4s}
      """
    When I send the call request {"tool": "exec", "input": {"argv": ["true"]}, "cwd": "/", "timeout_seconds": 8}
    Then the request fails with status 400 and code invalid_request
    And the error message contains "7 seconds"

  @EX-05
  Scenario: A missing helper is a warning at start and an error on use
    Given a workspace needs with the devcontainer configuration
      """
      {"image": "BUSYBOX"}
      """
    And the environment variable DRAY_DEVCONTAINER_CLI is "{root}/no-devcontainer-here"
    And a daemon with the configuration
      """
      trust: {workspaces: [{workspace}]}
      """
    Then the log contains "devcontainer CLI missing" with level "warn"
    When I call the tool exec with {"argv": ["touch", "{root}/ran"]}
    Then the call fails with reason unavailable
    And the error code is helper_missing
    And the error message contains "no-devcontainer-here"
    And the error has a hint
    And no process was started

  @RT-09
  Scenario: A workspace is trusted without an engine
    Given a workspace alone with the devcontainer configuration
      """
      {"image": "BUSYBOX"}
      """
    And the environment variable DOCKER_HOST is "unix:///nowhere/docker"
    And a daemon with the configuration
      """
      """
    When I trust the workspace
    Then /trusted is true
    And /state is "discovered"
    And /trust/source matches "image"

  @RT-13
  Scenario Outline: The configured engine is used, and the log names the origin of the setting
    Given the environment variable DOCKER_HOST is "<variable>"
    And a daemon with the configuration
      """
      engine: {<configured>}
      """
    Then the log contains "engine chosen" with host "<host>"
    And the log contains "engine chosen" with source "<source>"
    When I send the call request {"tool": "exec", "input": {"argv": ["true"]}, "container": "x"}
    Then the call fails with reason unavailable
    And the error code is engine_unavailable
    And the error has a hint

    Examples:
      | variable                   | configured                           | host                       | source      |
      | unix:///nowhere/docker.one |                                      | unix:///nowhere/docker.one | DOCKER_HOST |
      | unix:///nowhere/docker.one | host: "unix:///nowhere/docker.two"   | unix:///nowhere/docker.two | engine.host |

  @AU-04
  Scenario: A second daemon on the same state directory is refused
    Given a daemon with the configuration
      """
      limits: {drain: 1s}
      """
    When I start a second daemon on the same state directory
    Then the daemon exits with 1
    And stderr of the command contains "another daemon uses the state directory {state}"

  @AU-01
  Scenario: Without a begin record nothing runs
    Given a daemon with the configuration
      """
      host: {roots: [{root}]}
      """
    And another program locks the audit database
    When I send the call request {"tool": "exec", "input": {"argv": ["touch", "{root}/ran"]}, "cwd": "{root}", "environment": "host"}
    Then the request fails with status 503 and code audit_unavailable
    And the file {root}/ran does not exist
    When the audit database is unlocked
    And I send the call request {"tool": "exec", "input": {"argv": ["echo", "{root}/ran"]}, "cwd": "{root}", "environment": "host"}
    Then the call succeeds

  @OP-01
  Scenario: A stopping daemon waits for its calls, and its log is JSON without secrets
    Given the environment variable FEATURES_SECRET is "{secret}"
    And a daemon with the configuration
      """
      host: {roots: [{root}]}
      limits: {drain: 20s}
      """
    And the call request includes {"cwd": "{root}", "environment": "host", "env": {"PASSED": "{secret}"}}
    And a running call of exec has printed "ready", with {"argv": ["sh", "-c", "echo ready; sleep 1; echo $PASSED >&2; exit 5"]}
    When I stop the daemon
    And the daemon has logged "draining"
    Then the end event has reason exited
    And the daemon exits with 0
    And every line of the log is JSON with level, time and event
    And the log does not contain "{secret}"

  @OP-01
  Scenario: A call that outlasts the drain is cancelled
    Given a daemon with the configuration
      """
      host: {roots: [{root}]}
      limits: {drain: 300ms, grace: 200ms}
      """
    And the call request includes {"cwd": "{root}", "environment": "host"}
    And a running call of exec has printed "ready", with {"argv": ["sh", "-c", "trap '' TERM; echo ready; sleep 60"]}
    When I stop the daemon
    Then the end event has reason cancelled
    And the daemon exits with 0

  @SE-03
  Scenario Outline: An invalid request is refused before a call is accepted
    Given a daemon with the configuration
      """
      {}
      """
    When I send POST /v1/invocations with <body>
    Then the request fails with status <status> and code <code>
    When I send GET /v1/invocations
    Then /items is []

    Examples:
      | body                                                               | status | code            |
      | {"tool": "exec", "input": {"argv": ["true"]}, "tool": "shell"}     | 400    | invalid_request |
      | {"tool": "exec", "input": {"argv": ["true"]}, "unknown": 1}        | 400    | invalid_request |
      | {"tool": "exec", "input": {"argv": ["true"]}} {}                   | 400    | invalid_request |
      | {"tool": "exec", "input": {"argv": ["true"]}, "tty": {}}           | 400    | invalid_request |
      | {"tool": "exec", "input": {"argv": []}}                            | 400    | invalid_input   |
      | {"tool": "exec", "input": {"argv": ["a\u0000b"]}}                  | 400    | invalid_input   |
      | {"tool": "exec", "input": {"argv": ["true"], "x": 1}}              | 400    | invalid_input   |
      | {"tool": "nobody"}                                                 | 404    | unknown_tool    |
      | {"tool": "exec", "input": {"argv": ["\ud800"]}}                    | 400    | invalid_request |
      | {"tool": "exec", "input": {"argv": ["true"]}, "env": {"A=B": "x"}} | 400    | invalid_request |
      | {"tool": "exec", "input": {"argv": ["true"]}, "cwd": "a/../b"}     | 400    | invalid_request |
      | {"tool": "exec", "input": {"argv": ["true"]}, "workspace": "rel"}  | 400    | invalid_request |
      | {"tool": "shell", "input": {"command": "true"}, "stdin": "", "stdin_base64": ""} | 400 | invalid_request |
