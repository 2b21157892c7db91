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
	"github.com/millrace/millrace/services/gateway/internal/builds"
)

const (
	ecrTimeout = 30 * time.Second
	maxECR     = 64 << 10 // maximum bytes of a response
	ecrTarget  = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
)

// ecrEndpoint returns the URL of the API of a region's registries.
func (rg *registries) ecrEndpoint(region string) string {
	switch {
	case rg.ecr != "":
		return rg.ecr
	case strings.HasPrefix(region, "cn-"):
		return "https://api.ecr." + region + ".amazonaws.com.cn/"
	}
	return "https://api.ecr." + region + ".amazonaws.com/"
}

// ecrLogin exchanges an AWS access key for a registry's user name and password:
// GetAuthorizationToken of the API of 2015-09-21, signed with Signature Version 4. Its errors
// go into the build's log and contain nothing of the key: Precondition if the key is
// rejected, Unavailable without a valid response.
func (rg *registries) ecrLogin(ctx context.Context, c builds.Credentials) (username, password string, err error) {
	ctx, cancel := context.WithTimeout(ctx, ecrTimeout)
	defer cancel()
	const body = "{}"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, rg.ecrEndpoint(c.Region), strings.NewReader(body))
	if err != nil {
		return "", "", kind.Wrap(kind.Internal, "log in to ECR", c.Region, err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", ecrTarget)
	sum := sha256.Sum256([]byte(body))
	key := aws.Credentials{AccessKeyID: c.Username, SecretAccessKey: c.Password}
	if err := v4.NewSigner().SignHTTP(ctx, key, req, hex.EncodeToString(sum[:]), "ecr", c.Region, time.Now()); err != nil {
		return "", "", kind.Wrap(kind.Internal, "log in to ECR", c.Region, err)
	}
	client := http.Client{Transport: rg.ecrTransport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	answer, err := client.Do(req)
	if err != nil {
		return "", "", &kind.Error{Op: "log in to ECR", ID: c.Region, Kind: kind.Unavailable, Msg: "ECR in " + c.Region + " cannot be reached", Err: err}
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxECR))
	if err != nil {
		return "", "", &kind.Error{Op: "log in to ECR", ID: c.Region, Kind: kind.Unavailable, Msg: "ECR in " + c.Region + " did not complete its answer", Err: err}
	}
	if answer.StatusCode != http.StatusOK {
		return "", "", ecrRefusal(c.Region, answer.StatusCode, raw)
	}
	return ecrToken(c.Region, raw)
}

// ecrTransport connects to public addresses, and to the operator's endpoint.
func (rg *registries) ecrTransport() http.RoundTripper {
	if rg.ecr != "" {
		return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: dialTimeout}
	}
	return rg.transport()
}

// ecrRefusal returns AWS's error name only; the rest of the response may repeat what was
// signed.
func ecrRefusal(region string, status int, raw []byte) error {
	var failure struct {
		Type string `json:"__type"`
	}
	if err := json.Unmarshal(raw, &failure); err != nil {
		failure.Type = ""
	}
	_, name, _ := strings.Cut(failure.Type, "#") // after the schema's name
	if name == "" {
		name = failure.Type
	}
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || name == "ThrottlingException" {
		return kind.Newf(kind.Unavailable, "log in to ECR", region, "ECR in %s is temporarily unavailable: %d %.64q, try again", region, status, name)
	}
	return kind.Newf(kind.Precondition, "log in to ECR", region, "ECR in %s refuses the access key: %d %.64q", region, status, name)
}

// ecrToken extracts the user name and the password from a response.
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
	return "", "", kind.Newf(kind.Unavailable, "log in to ECR", region, "ECR in %s returned no authorization token", region)
}
