-- +goose Up

-- Most calls run in a container. A query for another environment reads only its own rows; one for the container reads invocations_started.
CREATE INDEX invocations_environment ON invocations (environment, started_at) WHERE environment <> 'container';
