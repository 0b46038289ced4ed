package adminclient

import (
	"context"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/admin/overview"
)

// State is what /server_info says of the relay itself.
type State struct {
	Problems      []overview.Problem
	Configuration struct{ Reloading *admin.Reloading }
}

// State asks for the relay's state.
func (c *Client) State(ctx context.Context) (s State, err error) {
	err = c.Get(ctx, "/server_info", nil, &s)
	return s, err
}

// Problems asks for the relay's own problems.
func (c *Client) Problems(ctx context.Context) ([]overview.Problem, error) {
	s, err := c.State(ctx)
	return s.Problems, err
}
