"use strict";
// Chat over /v1/chat/completions. Text of the model only ever becomes text nodes.
(() => {
  const $ = (id) => document.getElementById(id);
  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // ---- what is kept --------------------------------------------------------------------------------------------------
  const CHAT = "hadal.chat", SETTINGS = "hadal.settings", THEME = "hadal.theme", KEY = "hadal.key";
  const load = (store, name, otherwise) => {
    try { return JSON.parse(store.getItem(name)) ?? otherwise; } catch { return otherwise; }
  };
  const save = (store, name, value) => {
    try { store.setItem(name, JSON.stringify(value)); } catch { /* full or forbidden: the page works without */ }
  };

  // {role: user, assistant or tool, content; of the assistant: reasoning, calls: [{id, name, arguments}], finish, figures, stopped;
  // of a tool: call}
  const valid = (m) => m && ["user", "assistant", "tool"].includes(m.role) && typeof m.content === "string" && (m.calls ?? []).every?.((c) => c);
  const stored = load(localStorage, CHAT, []);
  let messages = Array.isArray(stored) ? stored.filter(valid) : [];
  const keep = () => save(localStorage, CHAT, messages);

  // ---- settings ------------------------------------------------------------------------------------------------------
  const fields = ["system", "thinking", "effort", "temperature", "top_p", "max_tokens", "seed", "tools"];
  const defaults = { system: "", thinking: false, effort: "high", temperature: "", top_p: "", max_tokens: "", seed: "", tools: "" };
  const show = (settings) => {
    for (const name of fields) $(name)[name === "thinking" ? "checked" : "value"] = settings[name] ?? defaults[name];
    $("effort").disabled = !$("thinking").checked;
  };
  const read = () => Object.fromEntries(fields.map((name) => [name, name === "thinking" ? $(name).checked : $(name).value]));
  show(load(localStorage, SETTINGS, {}));
  $("key").value = load(sessionStorage, KEY, "");
  $("options").addEventListener("input", () => {
    save(localStorage, SETTINGS, read());
    save(sessionStorage, KEY, $("key").value);
    $("effort").disabled = !$("thinking").checked;
  });
  $("key").addEventListener("change", findModel);
  $("options").addEventListener("submit", (event) => event.preventDefault());
  $("reset").addEventListener("click", () => {
    show(defaults);
    save(localStorage, SETTINGS, defaults);
    say("The settings are reset.");
  });

  const openSettings = (open, focus) => {
    $("settings").hidden = !open;
    $("open-settings").setAttribute("aria-expanded", open);
    (open ? focus ?? $("close-settings") : $("open-settings")).focus();
  };
  $("open-settings").addEventListener("click", () => openSettings($("settings").hidden));
  $("close-settings").addEventListener("click", () => openSettings(false));
  $("settings").addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); openSettings(false); }
  });

  const themes = ["auto", "light", "dark"];
  let theme = load(localStorage, THEME, "auto");
  const showTheme = () => {
    if (!themes.includes(theme)) theme = "auto";
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $("theme").replaceChildren(element("span", { className: "wide", textContent: "Colours: " }), theme);
  };
  $("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    save(localStorage, THEME, theme);
    showTheme();
  });
  showTheme();

  // ---- messages to the reader ----------------------------------------------------------------------------------------
  const say = (text) => { $("status").textContent = text; };
  const fail = (text) => {
    $("error-text").textContent = text;
    $("error").hidden = !text;
    $("retry").hidden = !messages.length || messages.at(-1).role === "assistant";
  };
  $("retry").addEventListener("click", () => { if (!controller) run(); });
  $("dismiss").addEventListener("click", () => { fail(""); $("input").focus(); });

  // ---- drawing -------------------------------------------------------------------------------------------------------
  // Fenced and inline code, bold text, headings and lists; everything else is text as it came.
  const drawInline = (text) => text.split(/(`[^`\n]+`|\*\*[^\s*](?:[^*\n]*[^\s*])?\*\*)/).filter(Boolean).map((part) => {
    if (part.length > 2 && part[0] === "`" && part.endsWith("`")) return element("code", { textContent: part.slice(1, -1) });
    if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) return element("strong", { textContent: part.slice(2, -2) });
    return document.createTextNode(part);
  });
  const listItem = /^(?:[-*•]|(\d{1,9})[.)]) +/;
  // The lines of a paragraph: lists where lines begin as items do, text between.
  const drawParagraph = (text) => {
    const blocks = [];
    for (const line of text.split("\n")) {
      const item = listItem.exec(line), last = blocks.at(-1);
      const tag = item ? (item[1] ? "ol" : "ul") : "p";
      const content = drawInline(item ? line.slice(item[0].length) : line);
      if (/^#{1,6} /.test(line)) {
        blocks.push(element("p", { className: "heading" }, element("strong", {}, line.replace(/^#+ /, ""))));
      } else if (item) {
        const list = last?.localName === tag ? last : element(tag, tag === "ol" ? { start: Number(item[1]) } : {});
        if (list !== last) blocks.push(list);
        list.append(element("li", {}, ...content));
      } else if (last && last.localName !== "p" && /^\s+\S/.test(line)) {
        last.lastChild.append("\n", ...drawInline(line.trimStart()));  // of the item above
      } else if (last?.localName === "p" && last.className !== "heading") {
        last.append("\n", ...content);
      } else {
        blocks.push(element("p", {}, ...content));
      }
    }
    return blocks;
  };
  const drawText = (into, text) => {
    into.replaceChildren();
    text.split(/^(```[^\n]*\n[\s\S]*?(?:^```[ \t]*$\n?|$(?![\s\S])))/m).forEach((part) => {
      const fence = /^```([^\n]*)\n([\s\S]*?)(?:^```[ \t]*\n?)?$(?![\s\S])/m.exec(part);
      if (fence && part.startsWith("```")) {
        into.append(element("pre", { tabIndex: 0 }, element("code", { textContent: fence[2].replace(/\n$/, "") })));
      } else if (part.trim()) {
        for (const paragraph of part.replace(/^\n+|\n+$/g, "").split(/\n{2,}/)) into.append(...drawParagraph(paragraph));
      }
    });
  };
  const pretty = (json) => {
    try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; }
  };
  const reasons = { length: "Cut off: the most tokens were reached.", error: "Cut off by an error.", content_filter: "Cut off." };
  const number = (value, digits = 0) => value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
  const figuresText = (f) => {
    if (!f) return "";
    const parts = [];
    if (f.first !== undefined) parts.push(`first token ${f.first < 1 ? `${number(f.first * 1000)} ms` : `${number(f.first, 1)} s`}`);
    if (f.speed) parts.push(`${number(f.speed, 1)} tokens/s`);
    if (f.tokens !== undefined) parts.push(`${number(f.tokens)} tokens${f.reasoning ? ` (${number(f.reasoning)} thinking)` : ""}`);
    if (f.prompt !== undefined) parts.push(`prompt ${number(f.prompt)}${f.cached !== undefined ? `, ${number(f.cached)} cached` : ""}`);
    return parts.join(" · ");
  };

  const answered = (call) => messages.some((m) => m.role === "tool" && m.call === call.id);
  // An article and a function that draws the message into it again.
  const makeArticle = (message) => {
    const names = { user: "You", assistant: "Model", tool: "Tool result" };
    const article = element("article", { className: message.role });
    const details = element("details", { hidden: true }), summary = element("summary"), reasoning = element("div", { className: "reasoning" });
    details.append(summary, reasoning);
    const text = element("div", { className: "text" }), calls = element("div"), foot = element("div", { className: "foot" });
    article.append(element("h3", { textContent: names[message.role] }), details, text, calls, foot);
    const draw = (running) => {
      if (message.reasoning) {
        details.hidden = false;
        summary.textContent = running && !message.content && !message.calls?.length ? "Thinking…" : "Thoughts";
        if (reasoning.textContent !== message.reasoning) reasoning.textContent = message.reasoning;
      }
      drawText(text, message.content);
      text.hidden = !message.content && !running;
      text.classList.toggle("cursor", !!running && !message.content);
      const unchanged = running && calls.childElementCount === (message.calls?.length ?? 0);
      if (!unchanged || running) calls.replaceChildren(...(message.calls ?? []).map((call) => drawCall(call, running)));
      foot.replaceChildren();
      if (message.role === "assistant" && !running) drawFoot(message, foot);
    };
    draw(false);
    return { article, draw };
  };
  const drawCall = (call, running) => {
    const box = element("section", { className: "call" }, element("h4", {}, "Calls ", element("code", { textContent: call.name })),
      element("pre", { tabIndex: 0 }, element("code", { textContent: pretty(call.arguments) })));
    box.setAttribute("aria-label", `Tool call ${call.name}`);
    if (running || answered(call)) return box;
    const input = element("textarea", { rows: 2, className: "code" });
    const form = element("form", {}, element("label", {}, `Result of ${call.name}`, input), element("button", { type: "submit", textContent: "Give result" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (running || controller) return;
      messages.push({ role: "tool", content: input.value, call: call.id });
      keep();
      // The model goes on when every call of the turn has its result.
      const turn = messages.findLast((m) => m.role === "assistant");
      drawAll();
      if (turn.calls.every(answered)) run();
      else document.querySelector(".call textarea")?.focus();
    });
    box.append(form);
    return box;
  };
  const drawFoot = (message, foot) => {
    if (message.content) {
      const copy = element("button", { type: "button", className: "small", textContent: "Copy" });
      copy.addEventListener("click", async () => {
        try { await navigator.clipboard.writeText(message.content); say("Copied."); copy.textContent = "Copied"; } catch { say("Copying is not possible here."); }
      });
      foot.append(copy);
    }
    if (message === messages.at(-1)) {
      const again = element("button", { type: "button", className: "small", textContent: "Regenerate" });
      again.addEventListener("click", regenerate);
      foot.append(again);
    }
    if (message.stopped) foot.append(element("span", { textContent: "Stopped." }));
    if (reasons[message.finish]) foot.append(element("span", { className: "warn", textContent: reasons[message.finish] }));
    const figures = figuresText(message.figures);
    if (figures) foot.append(element("span", { textContent: figures }));
  };

  let cleared = null;  // the conversation that "New chat" took away
  const atEnd = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 60;
  const toEnd = () => { $("scroll").scrollTop = $("scroll").scrollHeight; };
  const drawAll = () => {
    $("log").replaceChildren(...messages.map((m) => makeArticle(m).article));
    $("empty").hidden = messages.length > 0;
    $("undo").hidden = !cleared;
    toEnd();
  };

  // ---- the stream ----------------------------------------------------------------------------------------------------
  // Calls `take` with the data of every event of a text/event-stream.
  const readEvents = async (body, take) => {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", data = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        if (line !== "" || data.length === 0) continue;
        take(data.join("\n"));
        data = [];
      }
    }
  };

  const headers = () => ({ "Content-Type": "application/json", ...($("key").value ? { Authorization: `Bearer ${$("key").value}` } : {}) });
  const errorOf = async (response) => {
    let message = "";
    try {
      const body = await response.text();
      message = body.slice(0, 500);
      message = JSON.parse(body).error.message ?? message;
    } catch { /* no JSON: the text itself */ }
    return `${response.status} ${response.statusText}${message ? `: ${message}` : ""}`;
  };

  let modelName;
  async function findModel() {
    try {
      const response = await fetch("v1/models", { headers: headers() });
      if (response.status === 401) {
        fail("This server asks for an API key.");
        return openSettings(true, $("key"));
      }
      if (!response.ok) return;
      modelName = (await response.json()).data?.[0]?.id;
      $("model").textContent = modelName ?? "";
      $("model").title = modelName ?? "";
      fail("");
    } catch { /* the first message tells */ }
  }

  const readTools = (text) => {
    if (!text.trim()) return undefined;
    let list;
    try { list = JSON.parse(text); } catch (error) { throw new Error(`The tools are not valid JSON: ${error.message}`); }
    if (!Array.isArray(list)) throw new Error("The tools must be a JSON list.");
    return list.length ? list.map((tool) => tool.function ? tool : { type: "function", function: tool }) : undefined;
  };
  const requestOf = () => {
    const s = read();
    const sent = messages.map((m) => {
      if (m.role === "tool") return { role: "tool", tool_call_id: m.call, content: m.content };
      const one = { role: m.role, content: m.content };
      if (m.reasoning) one.reasoning_content = m.reasoning;
      if (m.calls?.length) one.tool_calls = m.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
      return one;
    });
    if (s.system.trim()) sent.unshift({ role: "system", content: s.system });
    const request = { messages: sent, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true }, tools: readTools(s.tools) };
    if (modelName) request.model = modelName;
    request.thinking = { type: s.thinking ? "enabled" : "disabled" };
    if (s.thinking) request.reasoning_effort = s.effort;
    for (const name of ["temperature", "top_p", "max_tokens", "seed"]) if (s[name] !== "") request[name] = Number(s[name]);
    return request;
  };

  let controller = null;  // of the answer that is coming
  const setRunning = (on) => {
    $("send").hidden = on;
    $("stop").hidden = !on;
    $("clear").disabled = on;
    $("log").setAttribute("aria-busy", on);
  };

  // Asks for the next answer to `messages`.
  async function run() {
    const wrong = [...$("options").elements].find((e) => e.willValidate && !e.checkValidity());
    if (wrong) {
      openSettings(true, wrong);
      return wrong.reportValidity();
    }
    let request;
    try { request = requestOf(); } catch (error) {
      fail(error.message);
      return openSettings(true, $("tools"));
    }
    fail("");
    const mine = controller = new AbortController();
    setRunning(true);
    say("The model answers.");
    const message = { role: "assistant", content: "", reasoning: "", calls: [], figures: {} };
    messages.push(message);
    drawAll();  // the message before is not the last any more
    const { article, draw } = makeArticle(message);
    $("log").lastChild.replaceWith(article);
    draw(true);
    toEnd();

    const started = performance.now();
    let first, last, pieces = 0, ended = false, usage, asked = false;
    const drawSoon = () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        if (ended || controller !== mine) return;
        const follow = atEnd();
        draw(true);
        measure();
        if (follow) toEnd();
      });
    };
    const measure = () => {
      const f = message.figures;
      if (first !== undefined) f.first = (first - started) / 1000;
      if (pieces || usage) f.tokens = usage?.completion_tokens ?? pieces;
      if (last - first > 100 && f.tokens > 1) f.speed = (f.tokens - 1) / ((last - first) / 1000);  // not of one burst
      if (usage) {
        f.prompt = usage.prompt_tokens;
        f.cached = usage.prompt_tokens_details?.cached_tokens;
        f.reasoning = usage.completion_tokens_details?.reasoning_tokens;
      }
      $("figures").textContent = figuresText(f);
    };
    const takeDelta = (delta) => {
      const reasoning = delta.reasoning_content ?? delta.reasoning;
      if (!delta.content && !reasoning && !delta.tool_calls) return;
      last = performance.now();
      first ??= last;
      ++pieces;
      if (reasoning) message.reasoning += reasoning;
      if (delta.content) message.content += delta.content;
      for (const part of delta.tool_calls ?? []) {
        const call = message.calls[part.index ?? 0] ??= { id: "", name: "", arguments: "" };
        if (part.id) call.id = part.id;
        if (part.function?.name) call.name = part.function.name;
        call.arguments += part.function?.arguments ?? "";
      }
    };
    try {
      let done = false;
      const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(request), signal: mine.signal });
      if (!response.ok) {
        if (response.status === 401) openSettings(true, $("key"));
        throw new Error(await errorOf(response));
      }
      await readEvents(response.body, (data) => {
        if (data === "[DONE]") { done = true; return; }
        const event = JSON.parse(data);
        if (event.error) throw new Error(event.error.message ?? "The server reports an error.");
        if (event.usage) usage = event.usage;
        for (const choice of event.choices ?? []) {
          takeDelta(choice.delta ?? {});
          if (choice.finish_reason) message.finish = choice.finish_reason;
        }
        drawSoon();
      });
      if (!done && !message.finish) throw new Error("The connection ended before the answer did.");
    } catch (error) {
      if (mine.signal.aborted) message.stopped = true;
      else fail(error instanceof TypeError ? "The server cannot be reached." : error.message);
    }
    ended = true;
    measure();
    $("figures").textContent = "";  // from now on at the end of the message
    message.calls = message.calls.filter(Boolean);
    controller = null;
    setRunning(false);
    const empty = !message.content && !message.reasoning && !message.calls.length;
    if (empty && !message.finish) {
      messages.pop();
      if (!$("error").hidden) fail($("error-text").textContent);  // now it can be tried again
    }
    keep();
    drawAllKeepingPlace(atEnd());
    say(message.stopped ? "Stopped." : message.calls.length ? `The model calls ${message.calls.map((c) => c.name).join(", ")}.`
      : $("error").hidden ? `The answer is complete. ${message.content.slice(0, 400)}` : "");
    if (document.activeElement === document.body || document.activeElement === $("stop")) $("input").focus();
  }
  const drawAllKeepingPlace = (follow) => {
    const open = [...$("log").querySelectorAll("details")].map((d) => d.open);
    const top = $("scroll").scrollTop;
    drawAll();
    $("log").querySelectorAll("details").forEach((d, i) => { d.open = !!open[i]; });
    if (!follow) $("scroll").scrollTop = top;
  };

  const stop = () => controller?.abort();
  function regenerate() {
    if (controller) return;
    while (messages.length && messages.at(-1).role === "assistant") messages.pop();
    drawAll();
    if (messages.length) run();
  }

  // ---- the composer --------------------------------------------------------------------------------------------------
  const fit = () => {
    $("input").style.height = "auto";
    $("input").style.height = `${$("input").scrollHeight + 2}px`;
  };
  $("input").addEventListener("input", fit);
  $("input").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("composer").requestSubmit();
  });
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("input").value;
    if (controller || !text.trim()) return;
    messages.push({ role: "user", content: text });
    $("input").value = "";
    fit();
    keep();
    drawAll();
    run();
  });
  $("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
  $("undo").addEventListener("click", () => {
    messages = cleared;
    cleared = null;
    keep();
    drawAll();
    say("The last conversation is back.");
    $("input").focus();
  });
  $("clear").addEventListener("click", () => {
    if (messages.length) cleared = messages;
    messages = [];
    keep();
    fail("");
    $("figures").textContent = "";
    drawAll();
    say("A new conversation.");
    $("input").focus();
  });
  addEventListener("pagehide", keep);

  drawAll();
  findModel();
})();
