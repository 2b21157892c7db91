module github.com/millrace/millrace/e2e

go 1.26.3

ignore ./sdk/node_modules

replace github.com/millrace/millrace => ../

require (
	connectrpc.com/connect v1.21.1
	github.com/creack/pty v1.1.24
	github.com/fasthttp/websocket v1.5.8
	github.com/hinshun/vt10x v0.0.0-20220301184237-5011da428d02
	github.com/millrace/millrace v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/molecule-man/go-brrr v1.0.1 // indirect
	github.com/savsgio/gotils v0.0.0-20240303185622-093b76447511 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasthttp v1.74.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
