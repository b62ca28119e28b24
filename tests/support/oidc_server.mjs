// An OpenID provider for tests: `node oidc_server.mjs PACKAGES PORT SECRET LIFETIME [KEY CERTIFICATE]`.
// A client that shows SECRET gets a token in its own name, for the audience kafka, for LIFETIME seconds; any other one gets 401.

const [packages, port, secret, lifetime, key, cert] = process.argv.slice(2);
const { OAuth2Server } = await import(`${packages}/oauth2-mock-server/dist/index.mjs`);

const server = new OAuth2Server(key, cert);
await server.issuer.keys.generate("RS256");

function login(request) {
  const [scheme, value] = (request.headers.authorization ?? "").split(" ");
  return scheme === "Basic" ? Buffer.from(value, "base64").toString().split(":") : [request.body.client_id, request.body.client_secret];
}

server.service.on("beforeTokenSigning", (token, request) => {
  token.payload.sub = decodeURIComponent(login(request)[0]);
  token.payload.aud = "kafka";
  token.payload.exp = token.payload.iat + Number(lifetime);
});
server.service.on("beforeResponse", (response, request) => {
  if (login(request)[1] !== secret) {
    response.statusCode = 401;
    response.body = { error: "invalid_client" };
  }
});

await server.start(Number(port), "127.0.0.1");
console.log(server.issuer.url);
