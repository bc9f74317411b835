// In a file of its own, because the page's policy allows no inline scripts.
window.ui = SwaggerUIBundle({
  url: "/api/v1/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null, // the default asks a server on the internet
});
