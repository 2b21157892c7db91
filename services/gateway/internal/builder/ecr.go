package builder

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	ecrWithin = 30 * time.Second
	maxECR    = 64 << 10 // bytes of an answer
	ecrTarget = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
)

// ecrEndpoint is where the API of a region's registries is.
func (cfg *Config) ecrEndpoint(region string) string {
	switch {
	case cfg.ECREndpoint != "":
		return cfg.ECREndpoint
	case strings.HasPrefix(region, "cn-"):
		return "https://api.ecr." + region + ".amazonaws.com.cn/"
	}
	return "https://api.ecr." + region + ".amazonaws.com/"
}

// ecrLogin gives the name and the password that a registry of AWS's takes from the
// bearer of an access key: GetAuthorizationToken of the API of 2015-09-21, signed by
// Signature Version 4. Its errors are for the build's log, and have nothing of the
// key: Precondition where the key is refused, Unavailable where nobody answers as AWS
// does.
func (cfg *Config) ecrLogin(ctx context.Context, c core.Credentials) (username, password string, err error) {
	ctx, cancel := context.WithTimeout(ctx, ecrWithin)
	defer cancel()
	const body = "{}"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.ecrEndpoint(c.Region), strings.NewReader(body))
	if err != nil {
		return "", "", kind.Wrap(kind.Internal, "ask ECR", c.Region, err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", ecrTarget)
	sum := sha256.Sum256([]byte(body))
	key := aws.Credentials{AccessKeyID: c.Username, SecretAccessKey: c.Password}
	if err := v4.NewSigner().SignHTTP(ctx, key, req, hex.EncodeToString(sum[:]), "ecr", c.Region, time.Now()); err != nil {
		return "", "", kind.Wrap(kind.Internal, "ask ECR", c.Region, err)
	}
	client := http.Client{Transport: cfg.ecrTransport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	answer, err := client.Do(req)
	if err != nil {
		return "", "", &kind.Error{Op: "ask ECR", ID: c.Region, Kind: kind.Unavailable, Msg: "ECR in " + c.Region + " cannot be reached", Err: err}
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxECR))
	if err != nil {
		return "", "", &kind.Error{Op: "ask ECR", ID: c.Region, Kind: kind.Unavailable, Msg: "ECR in " + c.Region + " did not answer to the end", Err: err}
	}
	if answer.StatusCode != http.StatusOK {
		return "", "", ecrRefusal(c.Region, answer.StatusCode, raw)
	}
	return ecrToken(c.Region, raw)
}

// ecrTransport reaches what is public, and what the operator named.
func (cfg *Config) ecrTransport() http.RoundTripper {
	if cfg.ECREndpoint != "" {
		return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: dialTimeout}
	}
	return cfg.transport()
}

// ecrRefusal says by which name AWS refused; what else it says may repeat what was
// signed.
func ecrRefusal(region string, status int, raw []byte) error {
	var said struct {
		Type string `json:"__type"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		said.Type = ""
	}
	_, name, _ := strings.Cut(said.Type, "#") // behind the name of a schema
	if name == "" {
		name = said.Type
	}
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || name == "ThrottlingException" {
		return kind.Newf(kind.Unavailable, "ask ECR", region, "ECR in %s has a problem of its own: %d %.64q, try again", region, status, name)
	}
	return kind.Newf(kind.Precondition, "ask ECR", region, "ECR in %s refuses the access key: %d %.64q", region, status, name)
}

// ecrToken reads the name and the password out of an answer.
func ecrToken(region string, raw []byte) (username, password string, err error) {
	var out struct {
		Data []struct {
			Token string `json:"authorizationToken"`
		} `json:"authorizationData"`
	}
	if json.Unmarshal(raw, &out) == nil && len(out.Data) > 0 {
		pair, derr := base64.StdEncoding.DecodeString(out.Data[0].Token)
		if username, password, ok := strings.Cut(string(pair), ":"); derr == nil && ok && password != "" {
			return username, password, nil
		}
	}
	return "", "", kind.Newf(kind.Unavailable, "ask ECR", region, "ECR in %s gave no authorization token", region)
}
