Feature: Routing
  A rule decides where a call runs and is reported. If that environment is unavailable, nothing runs anywhere else.

  @RT-01 @RT-03
  Scenario Outline: Precedence of the rules
    When I send POST /v1/route with {"tool": "<tool>", <call>}
    Then the response has status 200
    And /environment is <environment>
    And /rule is <rule>

    Examples:
      | tool   | call                                                                       | environment | rule                   |
      | exec   | "workspace": "{workspace}"                                                 | "container" | "devcontainer.nearest" |
      | exec   | "workspace": "{workspace}", "cwd": "sub"                                   | "container" | "devcontainer.nearest" |
      | exec   | "cwd": "{root}/plain"                                                      | "host"      | "host"                 |
      | exec   | "workspace": "{workspace}", "environment": "host"                          | "host"      | "call.environment"     |
      | exec   | "workspace": "{workspace}", "container": "box"                             | "container" | "call.container"       |
      | exec   | "workspace": "{workspace}", "context": {"plan_id": "p-box"}                | "container" | "plan.override"        |
      | exec   | "workspace": "{workspace}", "context": {"plan_id": "p-host"}               | "host"      | "plan.override"        |
      | exec   | "cwd": "{root}/plain", "context": {"plan_id": "p-back"}                    | "container" | "plan.fallback"        |
      | exec   | "workspace": "{workspace}", "context": {"plan_id": "p-back"}               | "container" | "devcontainer.nearest" |
      | exec   | "workspace": "{workspace}", "plan": {"override": "box"}                    | "container" | "plan.override"        |
      | here   | "workspace": "{workspace}"                                                 | "host"      | "tool.environment"     |
      | boxed  | "workspace": "{workspace}"                                                 | "container" | "tool.environment"     |
      | rather | "cwd": "{root}/plain"                                                      | "host"      | "host"                 |

  @RT-03
  Scenario: The nearest devcontainer from the working directory up to the workspace is used
    When I send POST /v1/route with {"tool": "exec", "workspace": "{workspace}", "cwd": "part"}
    Then /workspace is "{workspace}/part"
    When I send POST /v1/route with {"tool": "exec", "workspace": "{workspace}", "cwd": "sub"}
    Then /workspace is "{workspace}"

  @RT-01
  Scenario Outline: A tool's requirement applies at every level
    When I send the call request {"tool": "<tool>", "input": {}, <call>}
    Then the error code is route_conflict
    And the error has a hint
    And no process was started

    Examples:
      | tool  | call                                                                  |
      | here  | "workspace": "{workspace}", "environment": "container"                |
      | here  | "container": "box"                                                    |
      | there | "cwd": "{root}/plain", "environment": "host"                          |
      | there | "cwd": "{root}/plain", "context": {"plan_id": "p-host"}               |

  @RT-02
  Scenario Outline: An unavailable container is an error, never a run on the host
    When I send the call request {"tool": "exec", "input": {"argv": ["touch", "{root}/ran"]}, <call>}
    Then the call fails with reason unavailable
    And the error code is container_not_found
    And /route/environment is "container"
    And no process was started
    And the file {root}/ran does not exist

    Examples:
      | call                                                         |
      | "container": "gone"                                          |
      | "container": "nobody-at-all"                                 |
      | "cwd": "{root}/plain", "plan": {"fallback": "gone"}          |

  @RT-03
  Scenario: The dry run has the same result as the run
    When I send POST /v1/route with {"tool": "exec", "input": {"argv": ["hostname"]}, "container": "labelled"}
    Then /rule is "call.container"
    And /container is "labelled"
    When I send the call request {"tool": "exec", "input": {"argv": ["hostname"]}, "container": "labelled"}
    Then the call succeeds
    And /route/rule is "call.container"
    And /route/container is "labelled"
    And /metadata/container/id is "{box}"

  @RT-10
  Scenario Outline: The context of a call reaches its process and the audit log
    When I send the call request {"tool": "exec", "input": {"argv": ["sh", "-c", "echo $DRAY_PLAN_ID $DRAY_SESSION_ID $DRAY_SANDBOX_ID"]}, <call>, "env": {"DRAY_PLAN_ID": "mine", "DRAY_SESSION_ID": "mine"}, "context": {"plan_id": "p 1", "session_id": "<session>", "sandbox_id": "b", "labels": {"team": "a:b"}}}
    Then the call succeeds
    And stdout is "p 1 <session> b\n"
    When I send GET /v1/invocations?plan_id=p%201&session_id=<session>&label=team:a:b
    Then /items/0/context is {"plan_id": "p 1", "session_id": "<session>", "sandbox_id": "b", "labels": {"team": "a:b"}}
    And /items/1 is absent
    When I send GET /v1/invocations?session_id=<session>&label=team:a
    Then /items is []

    Examples:
      | call                                            | session |
      | "container": "box"                              | s-box   |
      | "cwd": "{root}/plain", "environment": "host"    | s-host  |

  @RT-01
  Scenario: A run on the host outside every root is denied
    When I send the call request {"tool": "exec", "input": {"argv": ["touch", "{root}/ran"]}, "cwd": "/usr", "environment": "host"}
    Then the call fails with reason denied
    And the error code is denied
    And the error message contains "host.roots"
    And no process was started
