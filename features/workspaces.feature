Feature: Workspaces are trusted, started, stopped and found again
  A devcontainer configuration can run commands on the host when its container is created. Only the user can trust it.

  @RT-09
  Scenario: An untrusted workspace is not built; after trust the first call builds it
    Given a workspace first with the devcontainer configuration
      """
      {"image": "BUSYBOX", "initializeCommand": "touch {root}/initialized", "remoteUser": "dev", "remoteEnv": {"S": "[${localEnv:FEATURES_SECRET}]"}}
      """
    When I call the tool exec with {"argv": ["touch", "{root}/ran"]}
    Then the call fails with reason denied
    And the error code is workspace_untrusted
    And the error has a hint
    And no process was started
    And the file {root}/initialized does not exist
    And the workspace has no container
    When I trust the workspace
    Then /trusted is true
    And /state is "discovered"
    And /trust/local_env matches "FEATURES_SECRET"
    Given a new call request
    When I call the tool exec with {"argv": ["id", "-un"]}
    Then the call succeeds
    And stdout is "dev\n"
    And the workspace has one container
    # A configuration that changed is another one, and the container that runs may still be used, without the host's variables.
    When the devcontainer configuration of the workspace changes to
      """
      {"image": "BUSYBOX", "remoteUser": "dev", "remoteEnv": {"S": "[[${localEnv:FEATURES_SECRET}]]"}}
      """
    Given a new call request
    And the call request includes {"local_env": {"FEATURES_SECRET": "callers"}}
    When I call the tool exec with {"argv": ["sh", "-c", "id -un; echo $S"]}
    Then stdout is "dev\n[[]]\n"
    And /metadata/warnings/0 matches "not trusted.*FEATURES_SECRET"
    # But it decides no user before it is trusted.
    When the devcontainer configuration of the workspace changes to
      """
      {"image": "BUSYBOX", "remoteUser": "other", "remoteEnv": {"S": "[${localEnv:FEATURES_SECRET}]"}}
      """
    Given a new call request
    When I call the tool exec with {"argv": ["touch", "{root}/ran"]}
    Then the error code is workspace_untrusted
    And no process was started
    When I send POST /v1/workspaces/{id}/stop
    Then /state is "stopped"
    And /trusted is false
    Given a new call request
    When I call the tool exec with {"argv": ["touch", "{root}/ran"]}
    Then the error code is workspace_untrusted
    And no process was started
    When I trust the workspace
    Given a new call request
    And the call request includes {"local_env": {"FEATURES_SECRET": "callers"}}
    When I call the tool exec with {"argv": ["sh", "-c", "id -un; echo $S"]}
    Then the call succeeds
    And stdout is "other\n[callers]\n"
    And the workspace has one container

  @RT-09 @RT-16
  Scenario: Trust is given for what was looked at only, and revoked
    Given a workspace looked with the devcontainer configuration
      """
      {"image": "BUSYBOX"}
      """
    When I send GET /v1/workspaces/{id}/trust
    Then /trusted is false
    And /changed is []
    When I trust the workspace
    And the devcontainer configuration of the workspace changes to
      """
      {"image": "BUSYBOX", "initializeCommand": "touch {root}/gained"}
      """
    And I call the tool exec with {"argv": ["true"]}
    Then the error code is workspace_untrusted
    And the file {root}/gained does not exist
    When I send GET /v1/workspaces/{id}/trust
    Then /trusted is false
    And /changed/0 is "added: initializeCommand touch {root}/gained"
    When I send POST /v1/workspaces/{id}/trust with {"hash": "sha256:0000"}
    Then the response has status 409
    And the error code is conflict
    When I send POST /v1/workspaces/{id}/trust with {}
    Then the response has status 400
    When I call the tool exec with {"argv": ["true"]}
    Then the error code is workspace_untrusted
    When I trust the workspace
    Then /trusted is true
    When I send DELETE /v1/workspaces/{id}/trust
    Then /trusted is false
    When I call the tool exec with {"argv": ["true"]}
    Then the error code is workspace_untrusted
    And the file {root}/gained does not exist

  @RT-08
  Scenario: A workspace needed by concurrent calls is built once
    Given a workspace many with the devcontainer configuration
      """
      {"image": "BUSYBOX", "postCreateCommand": "echo made >>/made"}
      """
    When I trust the workspace
    And I make 6 concurrent calls of exec with {"argv": ["sh", "-c", "read x; echo $x; echo $x >&2; exit $x"]}
    Then each call returns its own number
    And the workspace has one container
    When I call the tool exec with {"argv": ["cat", "/made"]}
    Then stdout is "made\n"
    When I send GET /v1/workspaces
    Then /items contains a running workspace

  Scenario Outline: A configuration error is reported with a hint
    Given a workspace <name> with the devcontainer configuration
      """
      <configuration>
      """
    When I trust the workspace
    And I call the tool exec with {"argv": ["touch", "{root}/ran"]}
    Then the error code is <code>
    And the error has a hint
    And no process was started

    Examples:
      | name   | configuration                                 | code                |
      | list   | [1, 2]                                        | container_failed    |
      | nobody | {"image": "dray-test/nobody-made-this:never"} | container_failed    |
      | number | {"image": 0.5}                                | container_failed    |

  Scenario: The command line has the same results and exit codes
    Given a workspace lines with the devcontainer configuration
      """
      {"image": "BUSYBOX"}
      """
    When I run dray exec --workspace {workspace} -- true
    Then the exit code is 125
    And stderr of the command contains "(workspace_untrusted)"
    And stderr of the command contains "dray workspace trust {workspace}"
    When I run dray workspace up {workspace}
    Then the exit code is 4
    When I run dray workspace trust {workspace}
    Then the exit code is 0
    And stdout of the command contains "sha256:"
    When I run dray workspace up {workspace}
    Then the exit code is 0
    When I run dray exec --workspace {workspace} -- sh -c exit${IFS}7
    Then the exit code is 7
    When I run dray workspace ls
    Then stdout of the command contains "{workspace}"
    When I run dray workspace stop {workspace}
    Then the exit code is 0
    When I run dray workspace up {root}/nowhere
    Then the exit code is 5
    And stderr of the command contains "(workspace_not_found)"
