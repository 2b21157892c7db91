// Package paging pages lists: a request names the size of a page (limit) and continues after
// the previous page (nextToken); the header X-Next-Token of a response has the token of the
// next page, if there is one.
package paging
