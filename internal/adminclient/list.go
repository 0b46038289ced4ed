package adminclient

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"strconv"
)

// pageSize is the number of items of a list in one request.
const pageSize = 10_000

// List returns all items of a list, page by page.
func (c *Client) List(ctx context.Context, path string, query url.Values) ([]json.RawMessage, error) {
	all := []json.RawMessage{}
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	maps.Copy(q, query)
	for {
		var page struct {
			Items []json.RawMessage `json:"items"`
			Next  string            `json:"next_page_token"`
		}
		if err := c.Get(ctx, path, q, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all, nil
		}
		q.Set("page_token", page.Next)
	}
}

// ListOfKey is List for a query that may have a key. An empty list is fine for a known key; an
// unknown key is most likely a mistake, and an error.
func (c *Client) ListOfKey(ctx context.Context, path string, query url.Values) ([]json.RawMessage, error) {
	items, err := c.List(ctx, path, query)
	if err == nil && len(items) == 0 && query.Has("key") {
		err = c.Get(ctx, "/keys/"+url.PathEscape(query.Get("key")), nil, new(json.RawMessage))
	}
	return items, err
}

// DecodeItems decodes the items of a list.
func DecodeItems[T any](c *Client, items []json.RawMessage) ([]T, error) {
	rows := make([]T, len(items))
	for i := range items {
		if err := c.Decode(items[i], &rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// ListOf returns all items of a list, decoded.
func ListOf[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	items, err := c.List(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return DecodeItems[T](c, items)
}
