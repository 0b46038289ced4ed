package admin

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sort"
	"strconv"
	"time"

	"xdsrelay/internal/admin/jsonyaml"
)

const (
	defaultLimit = 1000
	maxLimit     = 10000
	maxPage      = 4 << 20 // bytes of items after which a page ends
)

// page is a part of a list. Items are encoded one by one, so that memory is bounded by the page's
// size.
type page struct {
	Items []json.RawMessage `json:"items"`
	Next  string            `json:"next_page_token,omitempty"`
	// Total is the length of the whole list; nil: not counted.
	Total *int `json:"total,omitempty"`
}

var paging = []string{"limit", "page_token"}

// paged answers with a page of rows. place returns a row's place, which is unique and by which rows
// are ordered. show returns the item, or false if it has gone meanwhile.
func paged[T any](r *http.Request, rows []T, place func(*T) string, show func(*T) (any, bool)) (int, any) {
	return pagedFrom(r, func(after string) iter.Seq[*T] {
		return func(yield func(*T) bool) {
			for i := sort.Search(len(rows), func(i int) bool { return place(&rows[i]) > after }); i < len(rows); i++ {
				if !yield(&rows[i]) {
					return
				}
			}
		}
	}, place, show)
}

// pagedFrom is paged for rows that are made one by one: rows returns those behind a place, in
// order. A page also ends after diffTime, because rows of /nacks may have slow diffs.
func pagedFrom[T any](r *http.Request, rows func(after string) iter.Seq[*T], place func(*T) string, show func(*T) (any, bool)) (int, any) {
	limit, after, err := pageOf(r)
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	p := page{Items: []json.RawMessage{}}
	size, until := 0, time.Now().Add(diffTime)
	for row := range rows(after) {
		if len(p.Items) == limit || size > maxPage || len(p.Items) > 0 && time.Now().After(until) {
			p.Next = pageToken(r, after)
			break
		}
		v, ok := show(row)
		if !ok {
			continue
		}
		b, err := jsonyaml.JSON(v)
		if err != nil {
			return fail(http.StatusInternalServerError, fmt.Sprintf("item %q: cannot be encoded: %v", place(row), err))
		}
		p.Items = append(p.Items, b)
		size += len(b)
		after = place(row)
	}
	return http.StatusOK, p
}

// whole shows a row as it is.
func whole[T any](row *T) (any, bool) { return row, true }

var errPageToken = errors.New("page_token: must be the next_page_token of the previous page")

// pageOf reads limit and page_token.
func pageOf(r *http.Request) (limit int, after string, err error) {
	limit = defaultLimit
	q := r.URL.Query()
	if l := q.Get("limit"); l != "" {
		if limit, err = strconv.Atoi(l); err != nil || limit < 1 || limit > maxLimit {
			return 0, "", fmt.Errorf("limit: must be a number from 1 to %d", maxLimit)
		}
	}
	after, ok := placeOf(r, q.Get("page_token"))
	if !ok {
		return 0, "", errPageToken
	}
	return limit, after, nil
}

// pageToken encodes the place where a page ended. A sum protects against tokens that are invented
// or belong to another list, which would skip items without notice.
func pageToken(r *http.Request, after string) string {
	return base64.RawURLEncoding.EncodeToString(append(tokenSum(r, after), after...))
}

// placeOf returns the place in a page token; false if the token is not this list's. An empty token
// is the beginning.
func placeOf(r *http.Request, token string) (after string, ok bool) {
	if token == "" {
		return "", true
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < tokenSumBytes {
		return "", false
	}
	after = string(b[tokenSumBytes:])
	return after, bytes.Equal(b[:tokenSumBytes], tokenSum(r, after))
}

// tokenSumBytes is the length of the sum in a page token. It detects mistakes; it is no protection
// against attacks.
const tokenSumBytes = 4

func tokenSum(r *http.Request, after string) []byte {
	sum := sha256.Sum256([]byte(r.URL.Path + "\x00" + r.URL.Query().Get("sort") + "\x00" + after))
	return sum[:tokenSumBytes]
}
