Feature: Calls at once
  So many calls run at once, so many more wait for their turn, and the rest is told to come again.

  Background:
    Given a daemon with the configuration
      """
      limits: {concurrent: 2, per_container: 1, queue: 2, drain: 5s}
      host: {roots: [{root}]}
      """
    And a container of its own

  @EX-13
  Scenario: Calls wait in the order in which they came, and a full queue refuses before anything is accepted
    Given the calls c1 c2 c3 in the container that end with the file "go"
    Then the call c1 is running
    And the calls c2 c3 are queued
    And the list of those that are queued is c3 c2
    And the list of those that are running is c1
    When the tool exec is called with {"argv": ["true"]}
    Then it is refused with 429 and busy
    And the answer says when to try again
    And the error has a hint
    And the trail has 3 calls
    When the container gets the file "go"
    Then the calls c1 c2 c3 have succeeded in this order
    And the call c3 says that it waited

  @EX-13
  Scenario: A container that is full keeps no call for the host from running
    Given the calls c1 c2 in the container that end with the file "go"
    And the call c2 is queued
    When this is asked: {"tool": "exec", "input": {"argv": ["echo", "host"]}, "environment": "host", "workspace": "{root}"}
    Then the call has succeeded
    And stdout is "host\n"
    When the container gets the file "go"
    Then the calls c1 c2 have succeeded in this order

  @EX-13
  Scenario: A file tool on the host needs a turn as any other, and the waiting is no part of its timeout
    Given the calls c1 in the container that end with the file "go"
    And the call also says {"container": "", "environment": "host", "workspace": "{root}", "timeout_seconds": 60}
    When the tool exec is called in the background with {"argv": ["sh", "-c", "until [ -e {root}/done ]; do sleep 0.05; done"]}
    And the call also says {"timeout_seconds": 0.3}
    And the tool list_dir is called in the background with {"path": "{root}"}
    Then the call list_dir is queued
    When half a second has passed
    And the file {root}/done is made on the host
    Then the calls exec list_dir have succeeded in this order
    And the call list_dir says that it waited
    When the container gets the file "go"
    Then the calls c1 have succeeded in this order

  @EX-13 @EX-08
  Scenario: A call that waits can be cancelled, and nothing of it has run
    Given the calls c1 c2 in the container that end with the file "go"
    When the call c2 is given up
    Then the call has failed with the reason cancelled
    And nothing was started
    When the container gets the file "go"
    Then the calls c1 have succeeded in this order

  @EX-13
  Scenario: A client that goes away leaves the queue
    Given the calls c1 c2 c3 in the container that end with the file "go"
    When the client of c2 is gone
    Then the call c2 has ended with cancelled
    And the call c3 is queued
    When the container gets the file "go"
    Then the calls c1 c3 have succeeded in this order

  @EX-13 @OP-01
  Scenario: A daemon that ends answers those that wait, and lets those that run end
    Given the calls c1 c2 in the container that end with the file "go"
    And the call c2 is queued
    When the daemon is told to end
    Then the call c2 has ended with shutting_down
    When the container gets the file "go"
    Then the calls c1 have succeeded in this order

  @EX-13 @CF-01
  Scenario Outline: A limit that cannot be is refused at start, by name
    When a daemon is started with the configuration
      """
      limits: {<limit>}
      """
    Then it ends with 2
    And it says "limits.<name>"
    And it says "<fix>"

    Examples:
      | limit               | name          | fix    |
      | per_container: 4097 | per_container | 4096   |
      | per_container: 0    | per_container | from 1 |
      | concurrent: 0       | concurrent    | from 1 |
      | queue: -1           | queue         | from 0 |
      | queue: many         | queue         | from 0 |

  @EX-11
  Scenario: What a tool leaves running is ended
    Given the call also says {"leftovers": "kill"}
    When the tool exec is called with {"argv": ["sh", "-c", "sleep 984 >/dev/null 2>&1 & echo $!"]}
    Then the call has succeeded
    And /metadata/kill/leftover is 1
    And the process "sleep 984" is gone from that container

  @EX-11
  Scenario Outline: A call that asks for it leaves to its environment what its tool leaves running, and the trail says so
    Given the call also says {"container": "<container>", "environment": "<where>", "workspace": "<workspace>", "leftovers": "keep"}
    When the tool exec is called with {"argv": ["sh", "-c", "sleep <seconds> >/dev/null 2>&1 & echo $!"]}
    Then the call has succeeded
    And /leftovers is "keep"
    And /metadata/kill/leftover is 1
    And /metadata/kill/kept/0 is above 1
    And asking for the call again gives the same
    And the kept process is still there on the <where>

    Examples:
      | where     | container       | workspace | seconds |
      | container | {own container} |           | 983     |
      | host      |                 | {root}    | 5       |
