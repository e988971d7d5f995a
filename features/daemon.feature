Feature: The daemon: configuration, requests, logs and drain

  @CF-01
  Scenario Outline: A mistake in the configuration names the key, the place and the fix
    When a daemon is started with the configuration
      """
      <configuration>
      """
    Then it ends with 2
    And it says "{config}:<place>"
    And it says "<key>"
    And it says "<fix>"

    Examples:
      | configuration                            | place | key             | fix                  |
      | limits: {timeuot: 5s}                    | 1:10  | limits.timeuot  | timeout              |
      | limits: {timeout: -1s}                   | 1:19  | limits.timeout  | -1s                  |
      | limits: {timeout: 5}                     | 1:19  | limits.timeout  | 5s                   |
      | engine: {host: nowhere}                  | 1:16  | engine.host     | unix:///             |
      | retry: {attempts: 2}                     | 1:9   | retry.attempts  | not supported yet    |
      | tools: [{name: exec, argv: [true]}]      | 1:16  | tools[0].name   | built-in             |
      | tools: [{name: x, argv: [y], output_schema: {type: 5}, output: json}] | 1:16 | tools[0] | output_schema |
      | server: {socket: /tmp/s, socket: /tmp/t} | 1:26  | server.socket   | keep one of the two  |

  @PM-02 @PM-03 @PM-04 @CF-01
  Scenario Outline: A configured mapping that no path could be mapped by is refused
    When a daemon is started with the configuration
      """
      containers: {c: {id: x, mappings: [{host: <host>, container: <container>}]}}
      """
    Then it ends with 2
    And it says "containers.c.mappings[0]"
    And it says "<why>"

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
  Scenario: The environment goes before the file
    Given the variable DRAY_LIMITS_MAX_TIMEOUT is "7s"
    And a daemon with the configuration
      """
      limits: {max_timeout: 5s, timeout: 4s}
      """
    When this is asked: {"tool": "exec", "input": {"argv": ["true"]}, "cwd": "/", "timeout_seconds": 8}
    Then it is refused with 400 and invalid_request
    And the error says "7 seconds"

  @EX-05
  Scenario: A helper that is missing is a warning at start and an error when it is needed
    Given a workspace needs with the devcontainer
      """
      {"image": "BUSYBOX"}
      """
    And the variable DRAY_DEVCONTAINER_CLI is "{root}/no-devcontainer-here"
    And a daemon with the configuration
      """
      trust: {workspaces: [{workspace}]}
      """
    Then the log has "devcontainer CLI missing" with level "warn"
    When the tool exec is called with {"argv": ["true"]}
    Then the call has failed with the reason unavailable
    And the error is helper_missing
    And the error says "no-devcontainer-here"
    And the error has a hint
    And nothing was started

  @RT-09
  Scenario: A workspace is trusted while no engine answers
    Given a workspace alone with the devcontainer
      """
      {"image": "BUSYBOX"}
      """
    And the variable DOCKER_HOST is "unix:///nowhere/docker"
    And a daemon with the configuration
      """
      """
    When POST /v1/workspaces/{id}/trust is asked
    Then /trusted is true
    And /state is "discovered"
    And /trust/source matches "image"

  @RT-13
  Scenario Outline: The engine is the one that is named, and the log says who named it
    Given the variable DOCKER_HOST is "<variable>"
    And a daemon with the configuration
      """
      engine: {<configured>}
      """
    Then the log has "engine chosen" with host "<host>"
    And the log has "engine chosen" with source "<source>"
    When this is asked: {"tool": "exec", "input": {"argv": ["true"]}, "container": "x"}
    Then the call has failed with the reason unavailable
    And the error is engine_unavailable
    And the error has a hint

    Examples:
      | variable                   | configured                           | host                       | source      |
      | unix:///nowhere/docker.one |                                      | unix:///nowhere/docker.one | DOCKER_HOST |
      | unix:///nowhere/docker.one | host: "unix:///nowhere/docker.two"   | unix:///nowhere/docker.two | engine.host |

  @AU-04
  Scenario: A second daemon on the same state folder is refused
    Given a daemon with the configuration
      """
      limits: {drain: 1s}
      """
    When a second daemon is started beside it
    Then it ends with 1
    And it says "another daemon runs on the state folder {state}"

  @AU-01
  Scenario: No record, no run
    Given a daemon with the configuration
      """
      host: {roots: [{root}]}
      """
    And another program holds the trail's database
    When this is asked: {"tool": "exec", "input": {"argv": ["touch", "{root}/ran"]}, "cwd": "{root}", "environment": "host"}
    Then it is refused with 503 and audit_unavailable
    And the file {root}/ran does not exist
    When the trail's database is free again
    And this is asked: {"tool": "exec", "input": {"argv": ["echo", "{root}/ran"]}, "cwd": "{root}", "environment": "host"}
    Then the call has succeeded

  @OP-01
  Scenario: Told to end, a daemon lets its calls end, and its log is JSON without secrets
    Given the variable FEATURES_SECRET is "{secret}"
    And a daemon with the configuration
      """
      host: {roots: [{root}]}
      limits: {drain: 20s}
      """
    And the call also says {"cwd": "{root}", "environment": "host", "env": {"PASSED": "{secret}"}}
    And the tool exec has printed "ready" when called with {"argv": ["sh", "-c", "echo ready; sleep 1; echo $PASSED >&2; exit 5"]}
    When the daemon is told to end
    And the daemon has logged "draining"
    Then the events tell that it ended with the reason exited
    And it ends with 0
    And every line of the log is JSON with level, time and event
    And the log does not contain "{secret}"

  @OP-01
  Scenario: A call that outlasts the drain is cancelled, and the daemon ends
    Given a daemon with the configuration
      """
      host: {roots: [{root}]}
      limits: {drain: 300ms, grace: 200ms}
      """
    And the call also says {"cwd": "{root}", "environment": "host"}
    And the tool exec has printed "ready" when called with {"argv": ["sh", "-c", "trap '' TERM; echo ready; sleep 60"]}
    When the daemon is told to end
    Then the events tell that it ended with the reason cancelled
    And it ends with 0

  @SE-03
  Scenario Outline: A request that is not one is refused before anything is accepted
    Given a daemon with the configuration
      """
      {}
      """
    When POST /v1/invocations is asked with <body>
    Then it is refused with <status> and <code>
    When GET /v1/invocations is asked
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
