// Package templatestore implements the operations on templates: it finds, stores, tags,
// publishes and deletes them, and prunes the layers that they no longer use.
package templatestore
