module github.com/millrace/millrace/e2e

go 1.26.3

ignore ./sdk/node_modules

replace github.com/millrace/millrace => ../

require (
	connectrpc.com/connect v1.21.1
	github.com/millrace/millrace v0.0.0
)

require (
	github.com/creack/pty v1.1.24 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
