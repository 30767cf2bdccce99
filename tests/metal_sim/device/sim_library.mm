// See sim_library.h. A library is compiled when it is made, as Apple's is;
// a function with constants is compiled again when their values are known.
#import "device/sim_library.h"

using namespace metal_sim;

namespace {

struct ConstantType {
    MTLDataType type;
    const char* name;
    std::size_t bytes;
};

constexpr ConstantType constant_types[] = {
    {MTLDataTypeFloat, "float", 4},    {MTLDataTypeFloat2, "float2", 8}, {MTLDataTypeFloat3, "float3", 16},
    {MTLDataTypeFloat4, "float4", 16}, {MTLDataTypeHalf, "half", 2},     {MTLDataTypeInt, "int", 4},
    {MTLDataTypeInt2, "int2", 8},      {MTLDataTypeInt3, "int3", 16},    {MTLDataTypeInt4, "int4", 16},
    {MTLDataTypeUInt, "uint", 4},      {MTLDataTypeUInt2, "uint2", 8},   {MTLDataTypeUInt3, "uint3", 16},
    {MTLDataTypeUInt4, "uint4", 16},   {MTLDataTypeShort, "short", 2},   {MTLDataTypeUShort, "ushort", 2},
    {MTLDataTypeChar, "char", 1},      {MTLDataTypeUChar, "uchar", 1},   {MTLDataTypeBool, "bool", 1},
    {MTLDataTypeLong, "long", 8},      {MTLDataTypeULong, "ulong", 8},
};

std::vector<unsigned char> value_bytes(const char* call, const void* value, MTLDataType type) {
    require(value != NULL, call, "the value is NULL");
    for (const ConstantType& known : constant_types) {
        if (known.type != type) continue;
        const auto* bytes = static_cast<const unsigned char*>(value);
        return {bytes, bytes + known.bytes};
    }
    misuse(call, "data type " + std::to_string(type) + " is not one of function constants");
}

MTLDataType data_type(const std::string& name) {
    for (const ConstantType& known : constant_types) {
        if (name == known.name) return known.type;
    }
    return MTLDataTypeNone;
}

std::size_t size_of(const std::string& name) {
    for (const ConstantType& known : constant_types) {
        if (name == known.name) return known.bytes;
    }
    return 0;
}

int version_number(MTLLanguageVersion version) {
    return static_cast<int>(version >> 16) * 100 + static_cast<int>(version & 0xffff) * 10;
}

// Gives each constant of the library its value; false and a message when a value has the wrong size or is missing.
bool match_constants(const msl::Library& library, const ConstantValues& values, FunctionConstants& matched,
                     std::string& message) {
    for (const msl::ConstantInfo& constant : library.constants) {
        const auto by_name = values.by_name.find(constant.name);
        const auto by_index = values.by_index.find(constant.index);
        if (by_name == values.by_name.end() && by_index == values.by_index.end()) {
            if (!constant.required) continue;
            message =
                "function constant '" + constant.name + "' (index " + std::to_string(constant.index) + ") has no value";
            return false;
        }
        const auto& bytes = by_name != values.by_name.end() ? by_name->second : by_index->second;
        if (bytes.size() != size_of(constant.type)) {
            message = "function constant '" + constant.name + "' is of type " + constant.type + ", but its value has " +
                      std::to_string(bytes.size()) + " bytes";
            return false;
        }
        matched[constant.index] = bytes;
    }
    return true;
}

}  // namespace

@implementation MTLCompileOptions
@synthesize preprocessorMacros = _preprocessorMacros;
@synthesize mathMode = _mathMode;
@synthesize mathFloatingPointFunctions = _mathFloatingPointFunctions;
@synthesize languageVersion = _languageVersion;
@synthesize optimizationLevel = _optimizationLevel;
@synthesize maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
@synthesize preserveInvariance = _preserveInvariance;

- (id)init {
    if ((self = [super init])) {
        _mathMode = MTLMathModeFast;
        _languageVersion = MTLLanguageVersion3_2;
    }
    return self;
}
- (BOOL)fastMathEnabled {
    return _mathMode == MTLMathModeFast;
}
- (void)setFastMathEnabled:(BOOL)enabled {
    _mathMode = enabled ? MTLMathModeFast : MTLMathModeSafe;
}
- (id)copyWithZone:(NSZone*)zone {
    MTLCompileOptions* copy = [[MTLCompileOptions allocWithZone:zone] init];
    [copy setPreprocessorMacros:_preprocessorMacros];
    copy->_mathMode = _mathMode;
    copy->_mathFloatingPointFunctions = _mathFloatingPointFunctions;
    copy->_languageVersion = _languageVersion;
    copy->_optimizationLevel = _optimizationLevel;
    copy->_maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
    copy->_preserveInvariance = _preserveInvariance;
    return copy;
}
- (void)dealloc {
    [_preprocessorMacros release];
    [super dealloc];
}
@end

@implementation MTLFunctionConstantValues
- (id)init {
    if ((self = [super init])) _values = new ConstantValues;
    return self;
}
- (const ConstantValues&)simulationValues {
    return *static_cast<ConstantValues*>(_values);
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
    const char* call = "-[MTLFunctionConstantValues setConstantValue:type:atIndex:]";
    static_cast<ConstantValues*>(_values)->by_index[static_cast<unsigned>(index)] = value_bytes(call, value, type);
}
- (void)setConstantValues:(const void*)values type:(MTLDataType)type withRange:(NSRange)range {
    const char* call = "-[MTLFunctionConstantValues setConstantValues:type:withRange:]";
    const auto* at = static_cast<const unsigned char*>(values);
    for (NSUInteger i = 0; i < range.length; ++i) {
        const auto bytes = value_bytes(call, at, type);
        at += bytes.size();
        static_cast<ConstantValues*>(_values)->by_index[static_cast<unsigned>(range.location + i)] = bytes;
    }
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type withName:(NSString*)name {
    const char* call = "-[MTLFunctionConstantValues setConstantValue:type:withName:]";
    static_cast<ConstantValues*>(_values)->by_name[text(name)] = value_bytes(call, value, type);
}
- (void)reset {
    *static_cast<ConstantValues*>(_values) = {};
}
- (id)copyWithZone:(NSZone*)zone {
    MTLFunctionConstantValues* copy = [[MTLFunctionConstantValues allocWithZone:zone] init];
    *static_cast<ConstantValues*>(copy->_values) = *static_cast<ConstantValues*>(_values);
    return copy;
}
- (void)dealloc {
    delete static_cast<ConstantValues*>(_values);
    [super dealloc];
}
@end

@implementation MTLFunctionConstant
@synthesize name = _name;
@synthesize type = _type;
@synthesize index = _index;
@synthesize required = _required;
- (id)initWithInfo:(const msl::ConstantInfo&)info {
    if ((self = [super init])) {
        _name = [string(info.name) copy];
        _type = data_type(info.type);
        _index = info.index;
        _required = info.required;
    }
    return self;
}
- (void)dealloc {
    [_name release];
    [super dealloc];
}
@end

@implementation SimLibrary
- (id)initWithLibrary:(const std::shared_ptr<const msl::Library>&)library request:(const msl::CompileRequest&)request {
    if ((self = [super init])) {
        _library = new std::shared_ptr<const msl::Library>(library);
        _request = new msl::CompileRequest(request);
    }
    return self;
}

+ (id)libraryWithSource:(NSString*)source options:(MTLCompileOptions*)options error:(NSError**)error {
    msl::CompileRequest request;
    request.source = text(source);
    request.version = 320;
    if (options) {
        request.fast_math = [options mathMode] == MTLMathModeFast;
        request.version = version_number([options languageVersion]);
        NSEnumerator* names = [[options preprocessorMacros] keyEnumerator];
        for (NSString* name = [names nextObject]; name; name = [names nextObject]) {
            request.macros[text(name)] = text([[[options preprocessorMacros] objectForKey:name] description]);
        }
    }
    const msl::CompileResult result = msl::compile(request);
    if (!result.library) {
        set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, result.log);
        return nil;
    }
    return [[[SimLibrary alloc] initWithLibrary:result.library request:request] autorelease];
}

- (MTLLibraryType)type {
    return MTLLibraryTypeExecutable;
}
- (NSArray*)functionNames {
    NSMutableArray* names = [NSMutableArray array];
    for (const msl::KernelInfo& kernel : (*_library)->kernels) [names addObject:string(kernel.name)];
    return names;
}

- (id<MTLFunction>)newFunctionWithName:(NSString*)functionName {
    const char* call = "-[MTLLibrary newFunctionWithName:]";
    require(functionName != nil, call, "the name is nil");
    const msl::KernelInfo* kernel = (*_library)->find(text(functionName));
    if (!kernel) return nil;
    for (const msl::ConstantInfo& constant : (*_library)->constants) {
        require(
            !constant.required, call,
            "function constant '" + constant.name + "' needs a value: use newFunctionWithName:constantValues:error:");
    }
    return [[SimFunction alloc] initWithLibrary:*_library kernel:kernel];
}

- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)constantValues
                                 error:(NSError**)error {
    const char* call = "-[MTLLibrary newFunctionWithName:constantValues:error:]";
    require(name != nil, call, "the name is nil");
    require(constantValues != nil, call, "the constant values are nil");
    if (!(*_library)->find(text(name))) {
        set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorFunctionNotFound,
                  "there is no function '" + text(name) + "'");
        return nil;
    }
    FunctionConstants matched;
    std::string message;
    if (!match_constants(**_library, [constantValues simulationValues], matched, message)) {
        set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, message);
        return nil;
    }
    msl::CompileRequest request = *_request;
    request.constants = matched;
    const msl::CompileResult result = msl::compile(request);
    if (!result.library) {
        set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, result.log);
        return nil;
    }
    return [[SimFunction alloc] initWithLibrary:result.library kernel:result.library->find(text(name))];
}

- (void)dealloc {
    delete _library;
    delete _request;
    [super dealloc];
}
@end

@implementation SimFunction
- (id)initWithLibrary:(const std::shared_ptr<const msl::Library>&)library kernel:(const msl::KernelInfo*)kernel {
    if ((self = [super init])) {
        _library = new std::shared_ptr<const msl::Library>(library);
        _kernel = kernel;
    }
    return self;
}
- (const msl::KernelInfo&)kernel {
    return *_kernel;
}
- (std::string)identity {
    return (*_library)->identity + ' ' + _kernel->name;
}
- (MTLFunctionType)functionType {
    return MTLFunctionTypeKernel;
}
- (NSString*)name {
    return string(_kernel->name);
}
- (NSDictionary*)functionConstantsDictionary {
    NSMutableDictionary* constants = [NSMutableDictionary dictionary];
    for (const msl::ConstantInfo& info : (*_library)->constants) {
        MTLFunctionConstant* constant = [[MTLFunctionConstant alloc] initWithInfo:info];
        [constants setObject:constant forKey:[constant name]];
        [constant release];
    }
    return constants;
}
- (void)dealloc {
    delete _library;
    [super dealloc];
}
@end
