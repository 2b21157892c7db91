// Command gen compiles the .proto files of schema/ to Go, without protoc or buf:
//
//	go run ./schema/gen
//
// It must be run at the top of the checkout and rewrites the .pb.go files in place.
package main

import (
	"context"
	"log"
	"os"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	gengo "google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	files := []string{"process/process.proto", "filesystem/filesystem.proto", "event/v1/event.proto", "event/v1/attachment.proto", "event/v1/keys.proto", "event/v1/account.proto", "event/v1/bundle.proto", "event/v1/conversation.proto", "event/v1/usage.proto", "event/v1/ledger.proto", "event/v1/workspace.proto", "event/v1/persistence.proto", "event/v1/share.proto"}
	if err := run("schema", files); err != nil {
		log.Fatal(err)
	}
}

// run compiles files, which are relative to root, and writes the output of protoc-gen-go
// beside each.
func run(root string, files []string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return err
	}
	protos := []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(timestamppb.File_google_protobuf_timestamp_proto)}
	for _, f := range compiled {
		protos = append(protos, descriptorOf(f))
	}
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		ProtoFile:      protos,
		Parameter:      proto.String("paths=source_relative"),
	})
	if err != nil {
		return err
	}
	for _, f := range plugin.Files {
		if f.Generate {
			gengo.GenerateFile(plugin, f)
		}
	}
	for _, out := range plugin.Response().File {
		if err := os.WriteFile(filepath.Join(root, out.GetName()), []byte(out.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func descriptorOf(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	return protoutil.ProtoFromFileDescriptor(f)
}
