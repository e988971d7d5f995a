Feature: Concurrent calls
  A limited number of calls runs at once, a limited number is queued, and further ones are refused.

  Background:
    Given a daemon with the configuration
      """
      limits: {concurrent: 2, per_container: 1, queue: 2, drain: 5s}
      host: {roots: [{root}]}
      """
    And a separate container

  @EX-13
  Scenario: Calls are queued in order, and a full queue refuses before a call is accepted
    Given calls c1 c2 c3 in the container that wait for the file "go"
    Then the call c1 is running
    And the calls c2 c3 are queued
    And the list of queued calls is c3 c2
    And the list of running calls is c1
    When I call the tool exec with {"argv": ["true"]}
    Then the request fails with status 429 and code busy
    And the response has Retry-After
    And the error has a hint
    And the audit log contains 3 calls
    When the file "go" is created in the container
    Then the calls c1 c2 c3 succeed in this order
    And the call c3 was queued for more than 0 ms

  @EX-13
  Scenario: A container at its limit does not block calls on the host
    Given calls c1 c2 in the container that wait for the file "go"
    And the call c2 is queued
    When I send the call request {"tool": "exec", "input": {"argv": ["echo", "host"]}, "environment": "host", "workspace": "{root}"}
    Then the call succeeds
    And stdout is "host\n"
    When the file "go" is created in the container
    Then the calls c1 c2 succeed in this order

  @EX-13
  Scenario: A file tool on the host needs a slot, and the time in the queue does not count
    Given calls c1 in the container that wait for the file "go"
    And the call request includes {"container": "", "environment": "host", "workspace": "{root}", "timeout_seconds": 60}
    When I call the tool exec in the background with {"argv": ["sh", "-c", "until [ -e {root}/done ]; do sleep 0.05; done"]}
    And the call request includes {"timeout_seconds": 0.3}
    And I call the tool list_dir in the background with {"path": "{root}"}
    Then the call list_dir is queued
    When half a second has passed
    And the file {root}/done is created on the host
    Then the calls exec list_dir succeed
    And the call list_dir was queued for more than 499 ms
    When the file "go" is created in the container
    Then the calls c1 succeed in this order

  @EX-13 @EX-08
  Scenario: A queued call can be cancelled, and nothing of it has run
    Given calls c1 c2 in the container that wait for the file "go"
    When I cancel the call c2
    Then the call fails with reason cancelled
    And no process was started
    When the file "go" is created in the container
    Then the calls c1 succeed in this order

  @EX-13
  Scenario: A call leaves the queue when its client disconnects
    Given calls c1 c2 c3 in the container that wait for the file "go"
    When the client of c2 disconnects
    Then the call c2 ends with cancelled
    And the call c3 is queued
    When the file "go" is created in the container
    Then the calls c1 c3 succeed in this order

  @EX-13 @OP-01
  Scenario: A stopping daemon refuses queued calls and waits for running ones
    Given calls c1 c2 in the container that wait for the file "go"
    And the call c2 is queued
    When I stop the daemon
    Then the call c2 ends with shutting_down
    When the file "go" is created in the container
    Then the calls c1 succeed in this order

  @EX-13 @CF-01
  Scenario Outline: An invalid limit is refused at start and named
    When I start a daemon with the configuration
      """
      limits: {<limit>}
      """
    Then the daemon exits with 2
    And stderr of the command contains "limits.<name>"
    And stderr of the command contains "<fix>"

    Examples:
      | limit               | name          | fix    |
      | per_container: 4097 | per_container | 4096   |
      | per_container: 0    | per_container | from 1 |
      | concurrent: 0       | concurrent    | from 1 |
      | queue: -1           | queue         | from 0 |
      | queue: many         | queue         | from 0 |

  @EX-11
  Scenario: Leftover processes are killed
    Given the call request includes {"leftovers": "kill"}
    When I call the tool exec with {"argv": ["sh", "-c", "sleep 984 >/dev/null 2>&1 & echo $!"]}
    Then the call succeeds
    And /metadata/kill/leftover is 1
    And the process "sleep 984" does not run in that container

  @EX-11
  Scenario Outline: A call with leftovers keep leaves processes running, and the audit log records them
    Given the call request includes {"container": "<container>", "environment": "<where>", "workspace": "<workspace>", "leftovers": "keep"}
    When I call the tool exec with {"argv": ["sh", "-c", "sleep <seconds> >/dev/null 2>&1 & echo $!"]}
    Then the call succeeds
    And /leftovers is "keep"
    And /metadata/kill/leftover is 1
    And /metadata/kill/kept/0 is above 1
    And requesting the call again returns the same
    And the kept process still runs on the <where>

    Examples:
      | where     | container       | workspace | seconds |
      | container | {own container} |           | 983     |
      | host      |                 | {root}    | 5       |
