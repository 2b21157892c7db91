package codec

import (
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

func e2aToPB(e *sandbox.E2A) *pb.SandboxE2A {
	p := &e.Persistence
	if *e == (sandbox.E2A{}) {
		return nil
	}
	return &pb.SandboxE2A{App: e.App, Persistence: &pb.Persistence{
		Url: p.URL, SealedAuth: []byte(p.Auth), Conversation: p.Conversation, Generation: p.Generation,
	}}
}

func e2aFromPB(e *pb.SandboxE2A) sandbox.E2A {
	p := e.GetPersistence()
	return sandbox.E2A{App: e.GetApp(), Persistence: sandbox.Persistence{
		URL: p.GetUrl(), Auth: seal.Text(p.GetSealedAuth()), Conversation: p.GetConversation(), Generation: p.GetGeneration(),
	}}
}
