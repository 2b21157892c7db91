package builder

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/builds"
)

var access = builds.Credentials{Username: "AKIDEXAMPLE", Password: "canary-secret/+", Region: "us-west-2"}

// verifySignature verifies a request as AWS documents it for Signature Version 4, independently of the
// code that signed it.
func verifySignature(r *http.Request, body []byte, secret string) error {
	var key, scope, names, signature string
	for word := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		switch name {
		case "Credential":
			key, scope, _ = strings.Cut(value, "/")
		case "SignedHeaders":
			names = value
		case "Signature":
			signature = value
		}
	}
	at := r.Header.Get("X-Amz-Date")
	when, err := time.Parse("20060102T150405Z", at)
	if err != nil || time.Since(when).Abs() > 5*time.Minute {
		return fmt.Errorf("time %q is off", at)
	}
	if want := at[:8] + "/us-west-2/ecr/aws4_request"; scope != want || key != "AKIDEXAMPLE" {
		return fmt.Errorf("%s/%s is not of %s", key, scope, want)
	}
	headers := ""
	for name := range strings.SplitSeq(names, ";") {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		headers += name + ":" + strings.TrimSpace(value) + "\n"
	}
	for _, must := range []string{"host", "x-amz-date", "x-amz-target"} {
		if !slices.Contains(strings.Split(names, ";"), must) {
			return fmt.Errorf("%s is not signed", must)
		}
	}
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	mac := func(key []byte, s string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(s))
		return m.Sum(nil)
	}
	text := "AWS4-HMAC-SHA256\n" + at + "\n" + scope + "\n" + sum("POST\n/\n\n"+headers+"\n"+names+"\n"+sum(string(body)))
	by := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		by = mac(by, part)
	}
	if want := hex.EncodeToString(mac(by, text)); signature != want {
		return fmt.Errorf("the signature %s, want %s", signature, want)
	}
	return nil
}

// fakeECR responds as ECR does to requests signed with secret.
func fakeECR(t *testing.T, secret string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		switch {
		case err != nil || r.Header.Get("X-Amz-Target") != ecrTarget || r.Header.Get("Content-Type") != "application/x-amz-json-1.1" || string(body) != "{}":
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"__type":"com.amazon.coral.service#UnknownOperationException"}`)
		case verifySignature(r, body, secret) != nil:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"__type":"InvalidSignatureException","message":"canary of %s"}`, r.Header.Get("Authorization"))
		default:
			fmt.Fprintf(w, `{"authorizationData":[{"authorizationToken":%q,"proxyEndpoint":"https://1.dkr.ecr.us-west-2.amazonaws.com","expiresAt":1.5E9}]}`,
				base64.StdEncoding.EncodeToString([]byte("AWS:pass:word")))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestECRLogin(t *testing.T) {
	cfg := registries{ecr: fakeECR(t, access.Password).URL}
	username, password, err := cfg.ecrLogin(t.Context(), access)
	if username != "AWS" || password != "pass:word" || err != nil {
		t.Errorf("%q %q %v", username, password, err)
	}
	cfg.ecr = fakeECR(t, "another").URL
	_, _, err = cfg.ecrLogin(t.Context(), access)
	if !kind.Is(err, kind.Precondition) || !strings.Contains(kind.Message(err), `us-west-2 refuses the access key: 400 "InvalidSignatureException"`) {
		t.Errorf("a wrong secret: %v", err)
	}
	if strings.Contains(fmt.Sprint(err), "canary") || strings.Contains(fmt.Sprint(err), "AKID") {
		t.Errorf("the error contains the key: %v", err)
	}
}

func TestECRLoginErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		kind   kind.Kind
	}{
		"an unknown key":           {400, `{"__type":"UnrecognizedClientException","message":"m"}`, kind.Precondition},
		"a key without permission": {400, `{"__type":"AccessDeniedException"}`, kind.Precondition},
		"nothing that is JSON":     {403, `<html>`, kind.Precondition},
		"too many requests":        {400, `{"__type":"ThrottlingException"}`, kind.Unavailable},
		"a fault":                  {500, `{"__type":"ServerException"}`, kind.Unavailable},
		"a redirect":               {302, ``, kind.Precondition},
		"no token":                 {200, `{"authorizationData":[]}`, kind.Unavailable},
		"no base64":                {200, `{"authorizationData":[{"authorizationToken":"*"}]}`, kind.Unavailable},
		"no password":              {200, `{"authorizationData":[{"authorizationToken":"QVdTOg=="}]}`, kind.Unavailable},
		"too large an answer":      {200, strings.Repeat(" ", maxECR) + `{"authorizationData":[{"authorizationToken":"QVdTOmE="}]}`, kind.Unavailable},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		}))
		_, password, err := (&registries{ecr: s.URL}).ecrLogin(t.Context(), access)
		if s.Close(); !kind.Is(err, tt.kind) || password != "" || !strings.Contains(kind.Message(err), "ECR in us-west-2") {
			t.Errorf("%s: %q %v", name, password, err)
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	if _, _, err := (&registries{ecr: gone.URL}).ecrLogin(t.Context(), access); !kind.Is(err, kind.Unavailable) {
		t.Errorf("no server: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := (&registries{ecr: fakeECR(t, access.Password).URL}).ecrLogin(ctx, access); err == nil {
		t.Error("ecrLogin ignores its context")
	}
}

func TestECREndpoint(t *testing.T) {
	for region, want := range map[string]string{
		"us-west-2": "https://api.ecr.us-west-2.amazonaws.com/", "cn-north-1": "https://api.ecr.cn-north-1.amazonaws.com.cn/", "us-gov-west-1": "https://api.ecr.us-gov-west-1.amazonaws.com/",
	} {
		if got := new(registries).ecrEndpoint(region); got != want {
			t.Errorf("%s: %s", region, got)
		}
	}
}
