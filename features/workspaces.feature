Feature: Workspaces are trusted, brought up, stopped and found again
  What stands in a devcontainer configuration acts on the host when the container is made. Nobody but the user decides that it may.

  @RT-09
  Scenario: An untrusted workspace is not built, and trust lets the first call build it
    Given a workspace first with the devcontainer
      """
      {"image": "BUSYBOX", "initializeCommand": "touch {root}/initialized", "remoteUser": "dev", "remoteEnv": {"S": "[${localEnv:FEATURES_SECRET}]"}}
      """
    When the tool exec is called with {"argv": ["id", "-un"]}
    Then the call has failed with the reason denied
    And the error is workspace_untrusted
    And the error has a hint
    And nothing was started
    And the file {root}/initialized does not exist
    And the workspace has no container
    When POST /v1/workspaces/{id}/trust is asked
    Then /trusted is true
    And /state is "discovered"
    And /trust/local_env matches "FEATURES_SECRET"
    Given another call
    When the tool exec is called with {"argv": ["id", "-un"]}
    Then the call has succeeded
    And stdout is "dev\n"
    And the workspace has one container
    # A configuration that changed is another one, and the container that runs may still be used, without the host's variables.
    When the devcontainer of the workspace becomes
      """
      {"image": "BUSYBOX", "remoteUser": "other", "remoteEnv": {"S": "[${localEnv:FEATURES_SECRET}]"}}
      """
    Given another call
    And the call also says {"local_env": {"FEATURES_SECRET": "callers"}}
    When the tool exec is called with {"argv": ["sh", "-c", "id -un; echo $S"]}
    Then stdout is "other\n[]\n"
    And /metadata/warnings/0 matches "not trusted.*FEATURES_SECRET"
    When POST /v1/workspaces/{id}/stop is asked
    Then /state is "stopped"
    And /trusted is false
    Given another call
    When the tool exec is called with {"argv": ["true"]}
    Then the error is workspace_untrusted
    And nothing was started
    When POST /v1/workspaces/{id}/trust is asked
    Given another call
    And the call also says {"local_env": {"FEATURES_SECRET": "callers"}}
    When the tool exec is called with {"argv": ["sh", "-c", "id -un; echo $S"]}
    Then the call has succeeded
    And stdout is "other\n[callers]\n"
    And the workspace has one container

  @RT-08
  Scenario: A workspace that many calls need at once is built once
    Given a workspace many with the devcontainer
      """
      {"image": "BUSYBOX", "postCreateCommand": "echo made >>/made"}
      """
    When POST /v1/workspaces/{id}/trust is asked
    And 6 calls of exec run at once with {"argv": ["sh", "-c", "read x; echo $x; echo $x >&2; exit $x"]}
    Then each of them ended with its own number
    And the workspace has one container
    When the tool exec is called with {"argv": ["cat", "/made"]}
    Then stdout is "made\n"
    When GET /v1/workspaces is asked
    Then /items holds a workspace that is running

  Scenario Outline: What is wrong with a configuration is told, with what to do
    Given a workspace <name> with the devcontainer
      """
      <configuration>
      """
    When POST /v1/workspaces/{id}/trust is asked
    And the tool exec is called with {"argv": ["true"]}
    Then the error is <code>
    And the error has a hint
    And nothing was started

    Examples:
      | name   | configuration                                 | code                |
      | list   | [1, 2]                                        | container_failed    |
      | nobody | {"image": "dray-test/nobody-made-this:never"} | container_failed    |
      | number | {"image": 5}                                  | container_failed    |

  Scenario: A command line says the same, with its exit codes
    Given a workspace lines with the devcontainer
      """
      {"image": "BUSYBOX"}
      """
    When I run dray exec --workspace {workspace} -- true
    Then its exit code is 125
    And it says "(workspace_untrusted)"
    And it says "dray workspace trust {workspace}"
    When I run dray workspace up {workspace}
    Then its exit code is 4
    When I run dray workspace trust {workspace}
    Then its exit code is 0
    And it prints "sha256:"
    When I run dray workspace up {workspace}
    Then its exit code is 0
    When I run dray exec --workspace {workspace} -- sh -c exit${IFS}7
    Then its exit code is 7
    When I run dray workspace ls
    Then it prints "{workspace}"
    When I run dray workspace stop {workspace}
    Then its exit code is 0
    When I run dray workspace up {root}/nowhere
    Then its exit code is 5
    And it says "(workspace_not_found)"
