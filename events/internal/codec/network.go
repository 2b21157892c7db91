package codec

import (
	pb "github.com/millrace/millrace/schema/event/v1"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
)

func networkToPB(n *sandbox.Network) *pb.SandboxNetwork {
	out := &pb.SandboxNetwork{Internet: n.Internet, Allow: n.Allow, Deny: n.Deny, Private: n.Private, MaskHost: n.MaskHost}
	for _, p := range n.HTTPSPorts {
		out.HttpsPorts = append(out.HttpsPorts, uint32(p))
	}
	for _, t := range n.Transforms {
		to := &pb.SandboxTransform{Domain: t.Domain}
		for _, h := range t.Headers {
			to.Headers = append(to.Headers, &pb.SandboxHeader{Name: h.Name, Value: []byte(h.Value)})
		}
		out.Transforms = append(out.Transforms, to)
	}
	if p := n.Proxy; p != nil {
		out.Proxy = &pb.SandboxProxy{Address: p.Address, User: p.User, Password: []byte(p.Password)}
	}
	return out
}

func networkFromPB(n *pb.SandboxNetwork) sandbox.Network {
	if n == nil {
		return sandbox.Network{}
	}
	out := sandbox.Network{Internet: n.Internet, Allow: n.Allow, Deny: n.Deny, Private: n.Private, MaskHost: n.MaskHost}
	for _, p := range n.HttpsPorts {
		out.HTTPSPorts = append(out.HTTPSPorts, int(p))
	}
	for _, t := range n.Transforms {
		to := sandbox.Transform{Domain: t.GetDomain()}
		for _, h := range t.GetHeaders() {
			to.Headers = append(to.Headers, sandbox.Header{Name: h.GetName(), Value: seal.Text(h.GetValue())})
		}
		out.Transforms = append(out.Transforms, to)
	}
	if p := n.Proxy; p != nil {
		out.Proxy = &sandbox.Proxy{Address: p.Address, User: p.User, Password: seal.Text(p.Password)}
	}
	return out
}
