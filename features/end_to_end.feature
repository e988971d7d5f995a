Feature: A caller opens what a tool made by the paths that it got back
  A Python tool in the project's devcontainer is given a table by the caller's path. It writes a report and a picture and prints where they are,
  as it knows them. The caller opens both without ever hearing of the container's folders. It is the example in examples/report.

  Background:
    Given the workspace {workspace}

  @PM-01 @PM-09 @PM-14 @CA-06
  Scenario: What the tool wrote into the project is opened there
    When the tool report is called with {"table": "{workspace}/sales.csv"}
    Then the call has succeeded
    And stdout contains "/workspaces/app/reports/report.md"
    And /output is {"report": "{workspace}/reports/report.md", "picture": "{workspace}/reports/chart.png", "rows": 6}
    And the file at /output/report says "Together 1040; the best month was June."
    And the picture at /output/picture shows the amounts 120, 95, 170, 210, 185, 260

  @PM-09 @SY-05 @SY-11
  Scenario: What it wrote where the host sees nothing has come home
    When the tool report_home is called with {"table": "{workspace}/sales.csv"}
    Then the call has succeeded
    And stdout contains "/tmp/report/report.md"
    And /output/report matches "^{root}/home/[0-9a-f-]{36}/tmp/report/report.md$"
    And the file at /output/report says "Together 1040; the best month was June."
    And the picture at /output/picture shows the amounts 120, 95, 170, 210, 185, 260
    And /metadata/sync/state is "complete"
    And the file at /output/picture is one of those in /metadata/sync/files, byte for byte

  @PM-05 @PM-06
  Scenario: A table outside of what the container has is told by the tool, and one that climbs out is refused before it starts
    When the tool report is called with {"table": "/nowhere/sales.csv"}
    Then the call has failed with the reason exited
    And stderr contains "No such file or directory: '/nowhere/sales.csv'"
    And /metadata/mapping/unmapped/0/pointer is "/input/table"
    Given another call
    When the tool report is called with {"table": "{workspace}/../sales.csv"}
    Then the call has failed with the reason invalid
    And the error is path_invalid
    And nothing was started
