package conversation

import (
	"crypto/rand"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const subjectPrefix = "conv."

// docs is how conversations are stored.
var docs = &fold.Document[ID, State]{
	Name: "conversation", Stream: streams.Conversations,
	Subject: subjectOf,
	Key:     func(s *State) ID { return s.ID },
	Compare: func(a, b State) int { return strings.Compare(string(a.ID), string(b.ID)) },
	Decode:  decode,
	Over:    func(s *State) (time.Time, bool) { return s.Ended, s.Phase == Over },
	Keep:    Keep,
	Find:    func(subject string) ID { return ID(subject[strings.LastIndexByte(subject, '.')+1:]) },
}

func subjectOf(s *State) string { return subjectPrefix + s.Owner + "." + string(s.ID) }

// markBytes is the size of the random mark of a message.
const markBytes = 12

func encode(s *State, event string) proto.Message {
	mark := make([]byte, markBytes)
	rand.Read(mark)
	t := &s.Terms
	return &pb.Conversation{
		Id: string(s.ID), Owner: s.Owner, CreatedNs: codec.Nanos(s.Created),
		Phase: uint32(s.Phase), Generation: s.Generation, Sandbox: string(s.Sandbox), Runtime: string(s.Runtime),
		Terms: &pb.ConversationTerms{
			Template: t.Template, Vendor: t.LLM.Vendor, Model: t.LLM.Model, BaseUrl: t.LLM.BaseURL, Bundles: t.Bundles,
			App: t.App.ID, AppSet: t.App.Set, Capabilities: t.App.Capabilities, AgentVersion: t.AgentVersion, EndUser: t.EndUser,
			PersistenceUrl: t.Persistence.URL, PersistenceAuth: []byte(t.Persistence.Auth),
		},
		IssuedNs: codec.Nanos(s.Token.Issued), ExpiresNs: codec.Nanos(s.Token.Expires), Nonce: s.Token.Nonce, Base: s.Token.Base,
		Gateway: s.Claim.Gateway, ClaimedNs: codec.Nanos(s.Claim.At), Previous: string(s.Previous), ServedNs: codec.Nanos(s.Served),
		Status: string(s.Status), EndedNs: codec.Nanos(s.Ended),
		Notice: s.Notice.ID, Reason: s.Notice.Reason, Delivered: s.Notice.Delivered,
		Config: s.Config.Number, Generations: s.Config.Generations, ConfigKeys: s.Config.Keys,
		Attempt: mark, Event: event,
	}
}

func decode(m store.Message) (State, error) {
	var b pb.Conversation
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return State{}, err
	}
	t := b.GetTerms()
	return State{
		ID: ID(b.Id), Owner: b.Owner, Created: codec.Time(b.CreatedNs),
		Terms: Terms{
			Template: t.GetTemplate(), LLM: LLM{Vendor: t.GetVendor(), Model: t.GetModel(), BaseURL: t.GetBaseUrl()}, Bundles: t.GetBundles(),
			App: App{ID: t.GetApp(), Set: t.GetAppSet(), Capabilities: t.GetCapabilities()}, AgentVersion: t.GetAgentVersion(), EndUser: t.GetEndUser(),
			Persistence: sandbox.Persistence{URL: t.GetPersistenceUrl(), Auth: seal.Text(t.GetPersistenceAuth())},
		},
		Phase: Phase(b.Phase), Generation: b.Generation, Sandbox: sandbox.ID(b.Sandbox), Runtime: process.ID(b.Runtime),
		Token:    Token{Issued: codec.Time(b.IssuedNs), Expires: codec.Time(b.ExpiresNs), Nonce: b.Nonce, Base: b.Base},
		Claim:    Claim{Gateway: b.Gateway, At: codec.Time(b.ClaimedNs)},
		Previous: Status(b.Previous), Served: codec.Time(b.ServedNs), Status: Status(b.Status), Ended: codec.Time(b.EndedNs),
		Notice: Notice{ID: b.Notice, Reason: b.Reason, Delivered: b.Delivered},
		Config: Config{Number: b.Config, Generations: b.Generations, Keys: b.ConfigKeys}, Rev: m.Seq,
	}, nil
}
