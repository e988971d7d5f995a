package client

import (
	"context"
	"net/http"
)

// Direction is which way paths are mapped.
type Direction string

// The directions.
const (
	ToHost      Direction = "to_host"
	ToContainer Direction = "to_container"
)

// MapPathsRequest asks for the other name of paths. Exactly one of Workspace and Container is set.
type MapPathsRequest struct {
	Workspace string    `json:"workspace,omitzero"`
	Container string    `json:"container,omitzero"`
	Direction Direction `json:"direction"`
	Paths     []string  `json:"paths"`
}

// MapPathsReply has the paths in the order in which they were asked for. Those that have no other name stand unchanged in Paths and again in Unmapped.
type MapPathsReply struct {
	Paths    []string `json:"paths"`
	Unmapped []string `json:"unmapped"`
}

// MapPaths maps paths. Nothing is looked up on a disk.
func (c *Client) MapPaths(ctx context.Context, m MapPathsRequest) (Reply[MapPathsReply], error) {
	return exchange[MapPathsReply](ctx, c, http.MethodPost, "/v1/paths", m)
}
